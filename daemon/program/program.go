// Package program is the command line of a program that runs in a pod for long: its commands, whose
// settings are flags and variables of the environment, and the pod's limit of memory.
//
//	p := program.Program{Name: "sidecar-cni-installer", Settings: groups, Args: os.Args[1:], ...}
//	run := p.Command("run", "keep the plugin in the node's chain", about, groups)
//	run.RunE = func(*cobra.Command, []string) error { return s.run(ctx) }
//	err := p.Run(run)
package program

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
	"github.com/sidecar-cni/sidecar-cni/daemon/memory"
)

// Program is a program, and what it has of the world.
type Program struct {
	Name     string        // as it is called
	About    string        // a line
	Settings []flags.Group // of all commands: a variable for another command is no mistake

	Args    []string  // behind the name
	Environ []string  // as os.Environ has it
	CGroup  string    // where the process' own cgroup is mounted
	Stdout  io.Writer // for what was asked
	Stderr  io.Writer // for the log
}

// Command is one without RunE, with flags for the settings of its groups.
func (p Program) Command(use, short, about string, groups []flags.Group) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: about, Args: cobra.NoArgs}
	flags.Define(c.Flags(), groups)
	c.PreRunE = func(*cobra.Command, []string) error {
		return flags.FromEnvironment(c.Flags(), p.Environ, p.Settings)
	}
	c.SetHelpFunc(func(*cobra.Command, []string) {
		fmt.Fprintf(p.Stdout, "%s\n\nUsage: %s %s [flags]\n", about, p.Name, use)
		flags.Help(p.Stdout, groups)
	})
	return c
}

// Run does what the command line asks for, with one of the commands.
func (p Program) Run(commands ...*cobra.Command) error {
	if limit, ok := memory.Limit(p.CGroup); ok {
		debug.SetMemoryLimit(limit)
	}
	root := &cobra.Command{
		Use: p.Name, Short: p.About, Version: Version(), SilenceErrors: true, SilenceUsage: true,
	}
	root.SetArgs(p.Args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(commands...)
	return root.Execute()
}

// Version is that of the module, as the Go toolchain knows it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
