package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
	"github.com/sidecar-cni/sidecar-cni/daemon/program"
	"github.com/sidecar-cni/sidecar-cni/injector/validate"
)

type group = flags.Group

// commands are the groups of each, of given settings.
func commands(s *settings) map[string][]group {
	return map[string][]group{
		"serve": s.serveGroups(), "certify": s.certifyGroups(), "withdraw": s.withdrawGroups(),
		"validate": s.validateGroups(),
	}
}

func parse(command string, args, environ []string) (settings, error) {
	var s settings
	set := pflag.NewFlagSet(command, pflag.ContinueOnError)
	flags.Define(set, commands(&s)[command])
	if err := set.Parse(args); err != nil {
		return s, err
	}
	return s, flags.FromEnvironment(set, environ, everySetting())
}

var everyField = cmp.AllowUnexported(settings{}, sourceSettings{}, servingSettings{},
	guardSettings{}, podSettings{}, jobSettings{}, validationSettings{})

func TestEachSettingIsAFlagAndAVariable(t *testing.T) {
	t.Parallel()
	for command, groups := range commands(&settings{}) {
		initial, err := parse(command, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			for _, one := range g.Settings {
				value := "7m"
				if len(one.Words) > 0 {
					value = one.Words[0]
					if value == one.Initial {
						value = one.Words[1]
					}
				}
				byFlag, err1 := parse(command, []string{"--" + one.Name + "=" + value}, nil)
				byVariable, err2 := parse(command, nil, []string{one.Variable() + "=" + value})
				if err := errors.Join(err1, err2); err != nil {
					t.Errorf("%s --%s: %v", command, one.Name, err)
				}
				if diff := cmp.Diff(byFlag, byVariable, everyField); diff != "" {
					t.Errorf("%s --%s: flag and variable differ:\n%s", command, one.Name, diff)
				}
				if cmp.Equal(initial, byFlag, everyField) {
					t.Errorf("%s --%s: %q changes nothing", command, one.Name, value)
				}
			}
		}
	}
}

func TestHelpNamesEverything(t *testing.T) {
	t.Parallel()
	for command, groups := range commands(&settings{}) {
		var out bytes.Buffer
		if err := run(t.Context(), program.Program{
			Args: []string{command, "--help"}, Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			for _, one := range g.Settings {
				if !strings.Contains(out.String(), "\n  --"+one.Name) {
					t.Errorf("%s: --%s is not in the help", command, one.Name)
				}
				if len(one.About) < 8 || !strings.HasSuffix(one.About, ".") {
					t.Errorf("%s --%s: %q is no sentence", command, one.Name, one.About)
				}
			}
		}
	}
}

// TestWrongCommandLines: each mistake names the flag and what was wanted, before anything is done.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	files := []string{"serve", "--config-file=c", "--guard=none"}
	maps := []string{"serve", "--kubeconfig=testdata/none", "--guard=none"}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--guard=init"}, "want one of validation, none"},
		{[]string{"serve", "--drain=20"}, "want a duration of at least 1s"},
		{append(files, "--config-map=a/b", "--tls-cert-file=c", "--tls-key-file=k"),
			"want files or ConfigMaps, not both"},
		{append(files, "--tls-cert-file=c"), "want both"},
		{append(files, "--tls-cert-file=c", "--ca-secret=a/b"), "want files or a Secret, not both"},
		{[]string{"serve", "--config-file=c", "--tls-cert-file=c", "--tls-key-file=k"},
			"--validation-image: want"},
		{maps, "testdata/none"},
		{[]string{"certify", "--ca-secret=x"}, `--ca-secret: "x": want NAMESPACE/NAME`},
		{[]string{"certify", "--ca-secret=/x"}, `want NAMESPACE/NAME`},
		{[]string{"certify", "--ca-secret=a/b/c"}, `want NAMESPACE/NAME`},
		{[]string{"certify", "--ca-secret=a/b"}, "--webhook-configurations: want the names"},
		{[]string{"withdraw"}, "--webhook-configurations: want the names"},
		{[]string{"validate", "--inbound-port=0"}, "want a port from 1 to 65535"},
		{[]string{"validate", "--call=127.0.0.1:80"}, "want an address and an address with a port"},
		{[]string{"validate", "--call=127.0.0.1>[::1]:80"}, "two addresses of one family"},
		{[]string{"validate", "--call=127.0.0.1>127.0.0.6:0"}, "want a port from 1 to 65535"},
		{[]string{"serve", "extra"}, `unknown command "extra"`},
		{[]string{"sarve"}, `unknown command "sarve"`},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what is not refused ends at once
		var out bytes.Buffer
		err := run(ctx, program.Program{Args: row.args, Stdout: &out, Stderr: &out})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v, want %q", row.args, err, row.want)
		}
	}
}

func TestCallsOfTheValidation(t *testing.T) {
	t.Parallel()
	s, err := parse("validate", []string{"--inbound-port=6000",
		"--call=127.0.0.1>127.0.0.6:15002,::1>[::6]:15003"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	have, err := s.validation.options(nil)
	want := validate.Options{Inbound: 6000, Calls: []validate.Call{
		{From: netip.MustParseAddr("127.0.0.1"), To: netip.MustParseAddrPort("127.0.0.6:15002")},
		{From: netip.MustParseAddr("::1"), To: netip.MustParseAddrPort("[::6]:15003")},
	}}
	byValue := cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})
	if diff := cmp.Diff(want, have, byValue); err != nil || diff != "" {
		t.Errorf("%v, -want +have:\n%s", err, diff)
	}
}
