package compare_test

import (
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// listed returns a ruleset as the dialect of iptables writes it, read by somebody else.
func listed(t testing.TB, rs redirect.Ruleset) *xtables.Tables {
	t.Helper()
	tables, err := xtables.Read(iptables.Render(rs, redirect.IPv4),
		iptables.Render(rs, redirect.IPv6))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs.Routes {
		tables.Routed = append(tables.Routed, r.Mark)
	}
	return tables
}

// Whoever plays a ruleset, and whoever plays the lines that the dialect makes of it, share no code.
func TestBothEvaluatorsAgree(t *testing.T) {
	t.Parallel()
	for _, r := range append(matrix.Alone(), matrix.Pairs()...) {
		rs := redirect.Compile(policyOf(t, r))
		differences := compare.Compare(simulate.New(rs), listed(t, rs))
		if len(differences) > 0 {
			t.Errorf("%s: %d differences:\n%s", r.Name, len(differences),
				compare.Explain(differences, compare.Words{A: "the ruleset", B: "the listing"}))
		}
	}
}

// secondPen returns istio-init's rules for a pod of the matrix, and what was asked for.
func secondPen(t testing.TB, r matrix.Request, ipv6 bool) (*xtables.Tables, compare.Pod) {
	t.Helper()
	written, pod, err := matrix.SecondPen(r, ipv6)
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	tables, err := xtables.Read(written.IPv4, written.IPv6)
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", r.Name, err, written.IPv4, written.IPv6)
	}
	tables.Routed = written.Marks
	return tables, pod
}

// There are no differences from istio-init but those on purpose, and all of these occur.
func TestNoDifferenceFromIstioInitButOnPurpose(t *testing.T) {
	t.Parallel()
	occurred := map[string]int{}
	policies := 0
	for _, r := range append(matrix.Alone(), matrix.Pairs()...) {
		if matrix.OursAlone(r) {
			continue
		}
		policies++
		for _, ipv6 := range []bool{true, false} {
			p := policyOf(t, r)
			other, given := secondPen(t, r, ipv6)
			differences := compare.Compare(other, simulate.New(redirect.Compile(p)))
			var rest []compare.Difference
			for _, d := range compare.Separate(differences, given) {
				if occurred[d.Reason]++; d.Reason == "" {
					rest = append(rest, d)
				}
			}
			if len(rest) > 0 {
				t.Errorf("%s, IPv6 %t: %d differences:\n%s", r.Name, ipv6, len(rest),
					compare.Explain(rest, compare.Words{A: "istio-init", B: "sidecar-cni",
						Proxy: p.Proxy}))
			}
		}
	}
	t.Logf("%d policies: %v", policies, occurred)
	for _, p := range compare.Purposes {
		if occurred[p.Reason] == 0 {
			t.Errorf("no difference is because %s", p.Reason)
		}
	}
	if policies < 300 {
		t.Errorf("only %d policies", policies)
	}
}
