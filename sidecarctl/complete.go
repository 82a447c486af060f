package main

import (
	"github.com/spf13/cobra"
)

// complete has the shell offer the values of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	// It fails only where there is no such flag, which a test would see.
	_ = c.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
