package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// helps has a command's help fit a terminal, and refuses what no help is about.
func helps(root *cobra.Command) {
	root.SetUsageFunc(usageBy(root.UsageFunc()))
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		about := c.Long
		if about == "" {
			about = c.Short
		}
		fmt.Fprintf(c.OutOrStdout(), "%s\n%s", folded(about), c.UsageString())
	})
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("help %s: there is no such command; sidecarctl --help lists them",
					strings.Join(args, " "))
			}
			return about.Help()
		}})
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // there is none, which a test would see
	}
	var shells []string
	for _, c := range completion.Commands() {
		shells = append(shells, c.Name())
	}
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return usagef("completion %s: want one of %s", args[0], strings.Join(shells, ", "))
	}
}

// usageBy has what cobra says of a command's usage fit a terminal. A template of our own would say
// it as well, and bring text/template: 6 MB.
func usageBy(cobras func(*cobra.Command) error) func(*cobra.Command) error {
	return func(c *cobra.Command) error {
		out := c.OutOrStderr()
		var text strings.Builder
		c.SetOut(&text)
		err := cobras(c)
		c.SetOut(out)
		if err != nil {
			return err
		}
		pairs := []string{"for more information about a command", "for what a command does"}
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			if flags.HasAvailableFlags() {
				pairs = append(pairs, flags.FlagUsages(), flags.FlagUsagesWrapped(view.Width))
			}
		}
		_, err = strings.NewReplacer(pairs...).WriteString(out, text.String())
		return err
	}
}

// folded breaks the lines of a text that are too long, and joins those that it is written in. An
// item of a list begins a line, and what is indented stays as it is.
func folded(text string) string {
	var b strings.Builder
	paragraph := ""
	end := func() {
		for _, line := range view.Wrap(paragraph, view.Width) {
			b.WriteString(line + "\n")
		}
		paragraph = ""
	}
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "", line[0] == ' ', line[0] == '\t':
			end()
			b.WriteString(line + "\n")
			continue
		case strings.HasPrefix(line, "- "):
			end()
		}
		paragraph += line + " "
	}
	end()
	return b.String()
}

// numbers are what flags of a type take.
var numbers = map[string]string{
	"uint16": "a number from 0 to 65535", "uint": "a number", "int": "a number",
	"int64": "a number", "duration": "a time such as 30s",
}

// flagError is about a flag on the command line.
func flagError(_ *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := wrong.GetFlag()
		if want := numbers[flag.Value.Type()]; want != "" {
			err = fmt.Errorf("--%s %q: want %s", flag.Name, wrong.GetValue(), want)
		}
	}
	return &usageError{err}
}
