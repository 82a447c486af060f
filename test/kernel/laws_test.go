package kernel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// inPods runs f for every request in every dialect, each in a fresh namespace.
func inPods(t *testing.T, requests []matrix.Request,
	f func(*testing.T, dialect, *netns.NS, redirect.Ruleset)) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range requests {
				t.Run(testName(r), func(t *testing.T) {
					_, rs := compile(t, r)
					f(t, d, netns.New(t), rs)
				})
			}
		})
	}
}

func apply(t testing.TB, d dialect, ns *netns.NS, rs redirect.Ruleset) {
	t.Helper()
	var err error
	ns.Do(t, func() { err = d.apply(rs) })
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, d.render(rs))
	}
}

func remove(t testing.TB, d dialect, ns *netns.NS, rs redirect.Ruleset) {
	t.Helper()
	var err error
	ns.Do(t, func() { err = d.remove(rs) })
	if err != nil {
		t.Fatalf("remove: %v", err)
	}
}

func verify(t testing.TB, d dialect, ns *netns.NS, rs redirect.Ruleset) []redirect.Problem {
	t.Helper()
	var problems []redirect.Problem
	var err error
	ns.Do(t, func() { problems, err = d.verify(rs) })
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	return problems
}

func wantSilence(t testing.TB, d dialect, ns *netns.NS, rs redirect.Ruleset) {
	t.Helper()
	for _, p := range verify(t, d, ns, rs) {
		t.Errorf("verify after apply: %s", p)
	}
}

// everything that the laws speak of: rules, and what iproute2 shows of addresses, rules and routes.
func everything(t testing.TB, d dialect, ns *netns.NS) string {
	list := d.list(t, ns)
	for _, args := range [][]string{
		{"-br", "address", "show", "dev", "lo"}, {"rule"}, {"-6", "rule"},
		{"route", "show", "table", "all"}, {"-6", "route", "show", "table", "all"},
	} {
		list += settled(ns.Run(t, "", "ip", args...))
	}
	return list
}

// settled leaves out the routes that the kernel makes by itself for an address of lo, some time
// after it was added.
func settled(routes string) string {
	var b strings.Builder
	for line := range strings.Lines(routes) {
		if !strings.Contains(line, "::6 dev lo") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestLaws holds echo, reading back, verify and twice-is-once for every option by itself, with all
// that a ruleset may change.
func TestLaws(t *testing.T) {
	inPods(t, matrix.Alone(), func(t *testing.T, d dialect, ns *netns.NS, rs redirect.Ruleset) {
		ns.RaiseLoopback(t)
		before := everything(t, d, ns)
		apply(t, d, ns, rs)
		wantEcho(t, d, ns, rs)
		wantReadBack(t, d, ns, rs)
		wantSilence(t, d, ns, rs)
		once := everything(t, d, ns)
		apply(t, d, ns, rs)
		if diff := cmp.Diff(once, everything(t, d, ns)); diff != "" {
			t.Errorf("twice is not once (-once +twice):\n%s", diff)
		}
		wantSilence(t, d, ns, rs)
		remove(t, d, ns, rs)
		if diff := cmp.Diff(before, everything(t, d, ns)); diff != "" {
			t.Errorf("remove leaves something (-before +after):\n%s", diff)
		}
		if len(verify(t, d, ns, rs)) == 0 {
			t.Error("verify is silent after remove")
		}
		remove(t, d, ns, rs)
	})
}

// TestLawsOfPairs holds the same for every option with every other, as far as the rules go.
func TestLawsOfPairs(t *testing.T) {
	inPods(t, matrix.Pairs(), func(t *testing.T, d dialect, ns *netns.NS, rs redirect.Ruleset) {
		apply(t, d, ns, rs)
		wantEcho(t, d, ns, rs)
		wantReadBack(t, d, ns, rs)
		wantSilence(t, d, ns, rs)
		apply(t, d, ns, rs)
		wantSilence(t, d, ns, rs)
	})
}

func wantEcho(t testing.TB, d dialect, ns *netns.NS, rs redirect.Ruleset) {
	t.Helper()
	if diff := cmp.Diff(d.render(rs), d.list(t, ns)); diff != "" {
		t.Errorf("echo: the kernel lists other than was rendered (-rendered +listed):\n%s", diff)
	}
}

func TestTwoPens(t *testing.T) {
	inPods(t, matrix.Alone(), func(t *testing.T, d dialect, ns *netns.NS, rs redirect.Ruleset) {
		other := netns.New(t)
		apply(t, d, ns, rs)
		d.load(t, other, rs)
		if diff := cmp.Diff(d.list(t, ns), d.list(t, other)); diff != "" {
			t.Errorf("written by us and by the tool (-us +tool):\n%s", diff)
		}
	})
}
