package initflags

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Values are what istio-init is told, by the long name of the flag or, where there is no flag, by
// the name of the variable. A flag that nobody sets is absent; such a variable has its default.
type Values map[string]Value

// Value is what istio-init is told of one thing.
type Value struct {
	Key  string // the flag or the variable, as the user wrote it
	Text string // true or false for a toggle

	Unread string // a toggle's value that is neither, and counts as false
}

// Read reads istio-init's command line, with or without the programs' names in front, and the
// variables env of its container. It judges no value but those of toggles. The values stand in for
// variables that the container does not have.
func Read(args []string, env, values map[string]string) (Values, error) {
	v := Values{}
	for _, variable := range variables {
		v[variable.name] = Value{Key: variable.name, Text: variable.initial}
	}
	for _, source := range []map[string]string{values, env} {
		v.readVariables(source)
	}
	if err := v.readArgs(args); err != nil {
		return nil, fmt.Errorf("read the flags of istio-init: %w", err)
	}
	return v, nil
}

// readVariables takes what a set of variables says. A truth value that cannot be read is false:
// istio-init drops pflag's error, which has set the flag to false by then.
func (v Values) readVariables(source map[string]string) {
	if len(source) == 0 {
		return
	}
	for _, f := range slices.Concat(flags, workFlags) {
		for _, name := range f.variables() {
			value, ok := source[name]
			if !ok {
				continue
			}
			one := Value{Key: name, Text: value}
			if f.toggle {
				truth, err := strconv.ParseBool(value)
				one.Text = strconv.FormatBool(truth)
				if err != nil {
					one.Unread = value
				}
			}
			v[f.long] = one
		}
	}
	for _, variable := range variables {
		if value, ok := source[variable.name]; ok {
			v[variable.name] = Value{Key: variable.name, Text: value}
		}
	}
}

// readArgs reads a command line as cobra and pflag do, which istio-init is built with: -p15001,
// -p=15001, -p 15001, --envoy-port=15001 and --envoy-port 15001 are one; short names of toggles may
// be written together. Unlike there, a word that belongs to no flag is a mistake: mostly an
// asterisk that a shell took for file names.
func (v Values) readArgs(args []string) error {
	rest := afterProgram(args)
	for before := ""; len(rest) > 0; {
		arg := rest[0]
		rest = rest[1:]
		var err error
		switch {
		case arg == "--" && len(rest) == 0:
		case arg == "--" || len(arg) < 2 || arg[0] != '-':
			if arg == "--" {
				arg = rest[0]
			}
			err = alone(arg, before)
		case strings.HasPrefix(arg, "--"):
			rest, err = v.readLong(arg, rest)
		default:
			rest, err = v.readShort(arg, rest)
		}
		if err != nil {
			return err
		}
		before = arg
	}
	return nil
}

// alone is the error of a word that belongs to no flag. A toggle before it takes no word.
func alone(word, before string) error {
	toggle := func(f flag) bool {
		return f.toggle && (before == "--"+f.long || f.short != "" && before == "-"+f.short)
	}
	if _, ok := findFlag(toggle); ok {
		return fmt.Errorf("%q stands alone: %s takes no value but as %[2]s=false", word, before)
	}
	return fmt.Errorf("%q stands alone: want -flag value; quote an asterisk, and write "+
		"a value that is empty as ''", word)
}

// IsFlag reports whether a word is, or begins with, a flag of istio-init.
func IsFlag(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	_, ok := findFlag(func(f flag) bool {
		return name == "--"+f.long || f.short != "" && !strings.HasPrefix(word, "--") &&
			strings.HasPrefix(word, "-"+f.short)
	})
	return ok
}

// IsVariable reports whether istio-init reads a variable of this name, about what is redirected or
// about its work.
func IsVariable(name string) bool {
	if _, ok := findFlag(func(f flag) bool { return slices.Contains(f.variables(), name) }); ok {
		return true
	}
	return slices.ContainsFunc(variables,
		func(v struct{ name, initial string }) bool { return v.name == name })
}

// afterProgram drops the names by which proxy images call it: istio-iptables, or pilot-agent and
// that.
func afterProgram(args []string) []string {
	for _, name := range []string{"pilot-agent", "istio-iptables"} {
		if len(args) > 0 && path.Base(args[0]) == name {
			args = args[1:]
		}
	}
	return args
}

// readLong reads --name, --name=value or, with the first of the words behind it, --name value.
func (v Values) readLong(arg string, rest []string) ([]string, error) {
	name, value, attached := strings.Cut(arg, "=")
	f, ok := findFlag(func(f flag) bool { return "--"+f.long == name })
	if !ok {
		return nil, fmt.Errorf("unknown flag %q", name)
	}
	if attached {
		return rest, v.set(f, name, value)
	}
	return v.setNext(f, name, rest)
}

// readShort reads one word of short names, such as -p, -p15001, -p=15001 or -np.
func (v Values) readShort(arg string, rest []string) ([]string, error) {
	for letters := arg[1:]; letters != ""; letters = letters[1:] {
		name, behind := "-"+letters[:1], letters[1:]
		f, ok := findFlag(func(f flag) bool { return f.short == letters[:1] })
		switch {
		case !ok:
			return nil, fmt.Errorf("unknown flag %q in %q", name, arg)
		case len(behind) > 1 && behind[0] == '=':
			return rest, v.set(f, name, behind[1:])
		case f.toggle:
			if err := v.set(f, name, "true"); err != nil {
				return nil, err
			}
		case behind != "":
			return rest, v.set(f, name, behind)
		default:
			return v.setNext(f, name, rest)
		}
	}
	return rest, nil
}

// setNext sets a flag that has no value attached.
func (v Values) setNext(f flag, name string, rest []string) ([]string, error) {
	switch {
	case f.toggle:
		return rest, v.set(f, name, "true")
	case len(rest) == 0:
		return nil, fmt.Errorf("flag %q has no value", name)
	}
	return rest[1:], v.set(f, name, rest[0])
}

func (v Values) set(f flag, name, value string) error {
	if f.toggle {
		truth, err := strconv.ParseBool(value)
		if err != nil {
			key := fmt.Sprintf("flag %q", name)
			return redirect.Mistakes{{Key: key, Item: value, Want: "true or false"}}
		}
		value = strconv.FormatBool(truth)
	}
	v[f.long] = Value{Key: name, Text: value}
	return nil
}

func findFlag(is func(flag) bool) (flag, bool) {
	for _, list := range [][]flag{flags, workFlags, otherFlags} {
		if i := slices.IndexFunc(list, is); i >= 0 {
			return list[i], true
		}
	}
	return flag{}, false
}
