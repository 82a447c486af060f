// Package flags makes flags and variables of the environment of a program's settings. A table of
// groups is at once the parser, the help text and the reference page.
//
//	var s settings
//	groups := []flags.Group{flags.In("The daemon",
//		flags.New("listen", ":9466", &s.listen, "Address that the daemon listens on."),
//	)}
//	flags.Define(command.Flags(), groups)
//	err := flags.FromEnvironment(command.Flags(), os.Environ(), groups)
//
// Be aware: all commands that run in a pod have the same variables. So each has to be given the
// groups of all of them, to tell another command's variable from a mistake.
package flags

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Setting is a flag, and a variable of the environment that stands in for it.
type Setting struct {
	Name    string   // the flag's, without hyphens in front
	Initial string   // the default, as it would be typed
	Words   []string // the values that it can have; any if there are none
	About   string   // one sentence or more, for --help and the reference page

	// A pointer to what it sets: string, []string, bool, time.Time or time.Duration.
	Field any
}

// Group is a part of a table, as --help shows it.
type Group struct {
	Title    string    // the heading in --help and on the reference page
	Settings []Setting // in the order in which they are shown
}

// New returns a setting. What it is about may be in several parts, which a blank joins.
func New(name, initial string, field any, about ...string) Setting {
	return Setting{Name: name, Initial: initial, Field: field, About: strings.Join(about, " ")}
}

// OneOf says which values it can have.
func (s Setting) OneOf(words ...string) Setting {
	s.Words = words
	return s
}

// In puts settings under a title.
func In(title string, settings ...Setting) Group { return Group{Title: title, Settings: settings} }

const envPrefix = "SIDECAR_CNI_"

// Variable is the name of the variable of the environment.
func (s Setting) Variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Define adds the groups' flags, and sets all fields to what they are initially.
func Define(to *pflag.FlagSet, groups []Group) {
	for _, g := range groups {
		for _, one := range g.Settings {
			v := &value{of: one}
			if err := v.Set(one.Initial); err != nil {
				// This is a mistake in the table, which every start would meet.
				panic(fmt.Sprintf("--%s: its default: %v", one.Name, err))
			}
			f := to.VarPF(v, one.Name, "", one.About)
			if v.Type() == "bool" {
				f.NoOptDefVal = "true"
			}
		}
	}
}

// value makes a setting a pflag.Value.
type value struct {
	of   Setting
	text string
}

func (v *value) String() string { return v.text }

func (v *value) Type() string {
	switch v.of.Field.(type) {
	case *bool:
		return "bool"
	case *time.Duration:
		return "duration"
	}
	return "text"
}

func (v *value) Set(text string) error {
	if len(v.of.Words) > 0 && !slices.Contains(v.of.Words, text) {
		return fmt.Errorf("want one of %s", strings.Join(v.of.Words, ", "))
	}
	v.text = text
	switch field := v.of.Field.(type) {
	case *string:
		*field = text
	case *[]string:
		*field = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("want true or false")
		}
		*field = b
	case *time.Time:
		at, err := time.Parse(time.RFC3339, text)
		if err != nil && text != "" {
			return errors.New("want a time such as 2026-01-02T15:04:05Z")
		}
		*field = at
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second {
			return errors.New("want a duration of at least 1s, such as 5m")
		}
		*field = d
	}
	return nil
}

// serviceLink is what the kubelet sets for a Service whose name begins like ours.
var serviceLink = regexp.MustCompile(`_(SERVICE_(HOST|PORT.*)|PORT(_.*)?)$`)

// FromEnvironment sets the flags that the command line leaves out. A variable of ours that stands
// for nothing, in all groups of the program, is a mistake.
func FromEnvironment(to *pflag.FlagSet, environ []string, all []Group) error {
	known := map[string]*pflag.Flag{}
	to.VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(*value); ok {
			known[v.of.Variable()] = f
		}
	})
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		f, ok := known[name]
		switch {
		case !ok && strings.HasPrefix(name, envPrefix) && !serviceLink.MatchString(name) &&
			!knownVariable(name, all):
			return fmt.Errorf("variable %s: there is no such setting; see --help", name)
		case !ok, f.Changed:
		default:
			if err := to.Set(f.Name, text); err != nil {
				return fmt.Errorf("variable %s: %w", name, err)
			}
		}
	}
	return nil
}

func knownVariable(name string, all []Group) bool {
	return slices.ContainsFunc(all, func(g Group) bool {
		return slices.ContainsFunc(g.Settings, func(s Setting) bool { return s.Variable() == name })
	})
}

// Help writes the groups as a person reads them.
func Help(out io.Writer, groups []Group) {
	for _, g := range groups {
		fmt.Fprintf(out, "\n%s\n", g.Title)
		for _, s := range g.Settings {
			form := strings.Join(s.Words, "|")
			if form != "" {
				form = " " + form
			}
			fmt.Fprintf(out, "  --%s%s\n", s.Name, form)
			about := s.About
			if s.Initial != "" && s.Initial != "false" {
				about += " (" + s.Initial + ")"
			}
			for _, line := range wrap(about, 96) {
				fmt.Fprintf(out, "        %s\n", line)
			}
		}
	}
	if len(groups) > 0 && len(groups[0].Settings) > 0 {
		first := groups[0].Settings[0]
		fmt.Fprintf(out, "\nEach flag has a variable of the environment: --%s is %s.\n",
			first.Name, first.Variable())
	}
}

// wrap breaks a text into lines of at most so many bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
