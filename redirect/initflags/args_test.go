package initflags

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// byPflag reads a command line with the library that istio-init is built with.
func byPflag(args []string) (map[string]string, error) {
	set := pflag.NewFlagSet("istio-iptables", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range slices.Concat(flags, workFlags, otherFlags) {
		if f.toggle {
			set.BoolP(f.long, f.short, false, "")
		} else {
			set.StringP(f.long, f.short, "", "")
		}
	}
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("a word that belongs to no flag: %q", set.Arg(0))
	}
	values := map[string]string{}
	set.Visit(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	return values, nil
}

func sameAsPflag(t *testing.T, args []string) {
	t.Helper()
	want, wantErr := byPflag(args)
	given := Values{}
	err := given.readArgs(args)
	if (err != nil) != (wantErr != nil) {
		t.Errorf("%q: error %v, of pflag %v", args, err, wantErr)
	}
	if err != nil {
		return
	}
	got := map[string]string{}
	for name, v := range given {
		got[name] = v.Text
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-pflag +got):\n%s", args, diff)
	}
}

// commandLines are one a line.
const commandLines = `
-p 1
-p1
-p=1
--envoy-port 1
--envoy-port=1
-p 1 -p 2
-p
--envoy-port
--envoy-port=
-p=
-p==
-p --
-p -n
-n
-nf
-nfp1
-np 1
-np=1
-nx
-n=
-n=false
-n=maybe
-n false
--dry-run
--dry-run=0
--dry-run=
--dry-run=maybe
--dry-run true
--envoy-port --dry-run
--
-- -p 1
-
---
---p
-=
--=
--nonesuch
--nonesuch=1
--ENVOY-PORT 1
-envoy-port 1
-h
--help
word
-p 1 word -z 2
-i * -x
-é
-pé
--log_as_json --log_output_level=default:info
`

// pflag's own reading is what "as istio-init accepts them" means.
func TestACommandLineIsReadAsPflagReadsIt(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(commandLines) {
		sameAsPflag(t, strings.Fields(line))
	}
	sameAsPflag(t, []string{"-x", "", "-p", "1"})
	sameAsPflag(t, []string{"-p", "1", ""})
}

func FuzzInitFlags(f *testing.F) {
	for line := range strings.Lines(commandLines) {
		f.Add(strings.TrimSpace(line))
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		if len(afterProgram(args)) == len(args) {
			sameAsPflag(t, args)
		}
		p, err := Policy(args, nil, redirect.Defaults())
		if err == nil && len(p.Proxy.UIDs) == 0 {
			t.Errorf("%q: nobody is the proxy: %+v", args, p)
		}
	})
}

func TestTheNamesOfProgramsInFrontAreNoFlags(t *testing.T) {
	t.Parallel()
	for line, ok := range map[string]bool{
		"-p 1":                                     true,
		"istio-iptables -p 1":                      true,
		"/usr/local/bin/istio-iptables -p 1":       true,
		"pilot-agent istio-iptables -p 1":          true,
		"/usr/local/bin/pilot-agent -p 1":          true,
		"istio-iptables pilot-agent -p 1":          false,
		"istio-clean-iptables -p 1":                false,
		"-p 1 istio-iptables":                      false,
		"pilot-agent istio-iptables proxy sidecar": false,
	} {
		p, err := Policy(strings.Fields(line), nil, redirect.Defaults())
		if (err == nil) != ok || ok && p.Ports.Outbound != 1 {
			t.Errorf("%s: accepted %t, want %t: %+v, %v", line, err == nil, ok, p.Ports, err)
		}
	}
}

// Flags about how istio-init works say nothing about what is redirected, whichever of them a
// template adds.
func TestOtherFlagsOfIstioInitChangeNothing(t *testing.T) {
	t.Parallel()
	base := []string{"-p", "15001", "-u", "1337", "-i", "*", "-b", "*"}
	want, err := Policy(base, nil, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	check := func(more ...string) {
		got, err := Policy(slices.Concat(base, more), nil, redirect.Defaults())
		if err != nil {
			t.Errorf("%q: %v", more, err)
			return
		}
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Errorf("%q (-without +with):\n%s", more, diff)
		}
	}
	for _, f := range slices.Concat(workFlags, otherFlags) {
		name := "--" + f.long
		if f.toggle {
			check(name)
			check(name + "=false")
		} else {
			check(name, "default:info")
			check(name + "=5s")
		}
		if f.short != "" {
			check("-" + f.short)
		}
	}
}

func TestNoTwoFlagsOfIstioInitHaveOneName(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i, f := range slices.Concat(flags, workFlags, otherFlags) {
		for _, name := range []string{"--" + f.long, "-" + f.short} {
			if name == "-" {
				continue
			}
			if seen[name] {
				t.Errorf("flag %s: %s is taken", strconv.Itoa(i), name)
			}
			seen[name] = true
		}
	}
}
