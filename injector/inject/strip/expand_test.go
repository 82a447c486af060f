package strip

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// As Kubernetes documents it for command and args.
func TestVariablesAreExpandedAsTheKubeletDoes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"$(A)":         "1",
		"a$(A)b$(B)c":  "a1b2c",
		"$$(A)":        "$(A)",
		"$$$(A)":       "$1",
		"$(C)":         "$(C)",
		"$(A":          "$(A",
		"$A":           "$A",
		"$":            "$",
		"$$":           "$",
		"a$":           "a$",
		"$()":          "$()",
		"$($(A))":      "$($(A))",
		"$(A)$(H)$(B)": "1$(H)2",
		"é$(A)é":       "é1é",
	} {
		r := newReader()
		r.env, r.hidden = map[string]string{"A": "1", "B": "2"}, map[string]bool{"H": true}
		got, unknown := r.expand(in)
		if hidden := strings.Contains(in, "$(H)"); got != want || (unknown == "H") != hidden {
			t.Errorf("%q: %q, unknown %q; want %q", in, got, unknown, want)
		}
	}
}

// Thirty variables, each of which names the one before it twice, would be a gigabyte.
func TestVariablesThatGrowAreRefused(t *testing.T) {
	t.Parallel()
	env := variables("A0", "x")
	for i := range 30 {
		env = append(env, variables(fmt.Sprintf("A%d", i+1), fmt.Sprintf("$(A%d)$(A%d)", i, i))...)
	}
	refuses(t, "doubling", meshed(seed003, ofInit(env, "env")), []string{
		"its command line and variables come to more than 2097152 bytes: shorten them"})
}

func TestManyVariablesThatNameALongOneAreRefused(t *testing.T) {
	t.Parallel()
	env := variables("A", strings.Repeat("x", 1<<15))
	for i := range 70 {
		env = append(env, variables(fmt.Sprintf("B%d", i), "$(A)")...)
	}
	refuses(t, "many", meshed(seed003, ofInit(env, "env")), []string{
		"its command line and variables come to more than 2097152 bytes: shorten them"})
	refuses(t, "often", meshed(seed003, ofInit(env[:1], "env"),
		ofInit([]any{"istio-iptables", "-x", strings.Repeat("$(A)", 70)}, "args")), []string{
		"its command line and variables come to more than 2097152 bytes: shorten them"})
	if _, _, err := Strip(meshed(seed003, ofInit(env[:40], "env")), redirect.Defaults()); err != nil {
		t.Errorf("half of it: %v", err)
	}
}

// No text of a pod makes a message that nobody reads.
func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	env := make([]any, 10000)
	long := strings.Repeat("é", 1<<19)
	for name, pod := range map[string]podtree.Object{
		"variables": meshed(seed003, ofInit(env, "env")),
		"a program": meshed("", ofInit([]any{long}, "command")),
		"a word":    meshed(seed003 + " " + long),
		// each of these looked for its end, once
		"references without an end": meshed(seed003 + " " + strings.Repeat("$(", 1<<19)),
		"a value":                   meshed(seed003 + " -u 7 -d http -o " + strings.Repeat("http,", 1<<16)),
		"CIDRs":                     meshed(seed003+" --redirect-dns", ofProxy(long, "name")),
		"init containers": meshed("istio-iptables -i *", inits(
			container(long, -1), container(long, -1), container(long, -1))),
	} {
		_, _, err := Strip(pod, redirect.Defaults())
		if err == nil || len(err.Error()) > 30000 {
			t.Errorf("%s: %.1000v", name, err)
		}
	}
}
