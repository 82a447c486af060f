package redirect

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// initValues are the values of istio-init's flags, by their long names.
type initValues map[string]initValue

type initValue struct {
	key   string // the flag or the variable, as the user wrote it
	value string
}

// initFlagsOf returns what the variables say, those of the container before the cluster's
// stand-ins. A truth value that cannot be read is false: istio-init drops pflag's error, which has
// set the flag to false by then.
func initFlagsOf(env map[string]string, cfg Config) initValues {
	given := initValues{}
	for _, source := range []map[string]string{cfg.Values, env} {
		for _, f := range initFlags {
			for _, name := range f.variables() {
				value, ok := source[name]
				if !ok {
					continue
				}
				if f.toggle {
					truth, _ := strconv.ParseBool(value)
					value = strconv.FormatBool(truth)
				}
				given[f.long] = initValue{name, value}
			}
		}
	}
	return given
}

// readArgs reads a command line as cobra and pflag do, which istio-init is built with: -p15001,
// -p=15001, -p 15001, --envoy-port=15001 and --envoy-port 15001 are one; short names of toggles may
// be written together. Unlike there, a word that belongs to no flag is a mistake: mostly an
// asterisk that a shell took for file names.
func (given initValues) readArgs(args []string) error {
	rest := afterProgram(args)
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		var err error
		switch {
		case arg == "--" && len(rest) == 0:
		case arg == "--" || len(arg) < 2 || arg[0] != '-':
			if arg == "--" {
				arg = rest[0]
			}
			err = fmt.Errorf("%q stands alone: want -flag value", arg)
		case strings.HasPrefix(arg, "--"):
			rest, err = given.readLong(arg, rest)
		default:
			rest, err = given.readShort(arg, rest)
		}
		if err != nil {
			return fmt.Errorf("read the flags of istio-init: %w", err)
		}
	}
	return nil
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
func (given initValues) readLong(arg string, rest []string) ([]string, error) {
	name, value, attached := strings.Cut(arg, "=")
	f, ok := findInitFlag(func(f initFlag) bool { return "--"+f.long == name })
	if !ok {
		return nil, fmt.Errorf("unknown flag %q", name)
	}
	if attached {
		return rest, given.set(f, name, value)
	}
	return given.setNext(f, name, rest)
}

// readShort reads one word of short names, such as -p, -p15001, -p=15001 or -np.
func (given initValues) readShort(arg string, rest []string) ([]string, error) {
	for letters := arg[1:]; letters != ""; letters = letters[1:] {
		name, behind := "-"+letters[:1], letters[1:]
		f, ok := findInitFlag(func(f initFlag) bool { return f.short == letters[:1] })
		switch {
		case !ok:
			return nil, fmt.Errorf("unknown flag %q in %q", name, arg)
		case len(behind) > 1 && behind[0] == '=':
			return rest, given.set(f, name, behind[1:])
		case f.toggle:
			if err := given.set(f, name, "true"); err != nil {
				return nil, err
			}
		case behind != "":
			return rest, given.set(f, name, behind)
		default:
			return given.setNext(f, name, rest)
		}
	}
	return rest, nil
}

// setNext sets a flag that has no value attached.
func (given initValues) setNext(f initFlag, name string, rest []string) ([]string, error) {
	switch {
	case f.toggle:
		return rest, given.set(f, name, "true")
	case len(rest) == 0:
		return nil, fmt.Errorf("flag %q has no value", name)
	}
	return rest[1:], given.set(f, name, rest[0])
}

func (given initValues) set(f initFlag, name, value string) error {
	if f.toggle {
		truth, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("flag %q: %s: want true or false", name, shorten(value))
		}
		value = strconv.FormatBool(truth)
	}
	given[f.long] = initValue{name, value}
	return nil
}

func findInitFlag(is func(initFlag) bool) (initFlag, bool) {
	for _, flags := range [][]initFlag{initFlags, otherInitFlags} {
		if i := slices.IndexFunc(flags, is); i >= 0 {
			return flags[i], true
		}
	}
	return initFlag{}, false
}
