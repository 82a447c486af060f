package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// option returns the default pod with one of the matrix's options.
func option(name string) matrix.Request {
	all := matrix.Alone()
	return all[slices.IndexFunc(all, func(r matrix.Request) bool { return r.Name == name })]
}

// explained returns the first sentences about what an option changes.
func explained(t *testing.T, from, to matrix.Request, most int) []string {
	t.Helper()
	a, b := redirect.Compile(policyOf(t, from)), redirect.Compile(policyOf(t, to))
	text := compare.Explain(compare.Compare(simulate.New(a), simulate.New(b)),
		compare.Words{A: "before", B: "after", Proxy: policyOf(t, from).Proxy})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[:min(most, len(lines))]
}

func TestSentencesSayWhatAnOptionChanges(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"default": {"No packet is treated differently."},
		"exclude one outbound port": {
			"TCP from anybody but the proxy to port 9090 out of the pod: before redirects it to " +
				"15001, after lets it pass: excluded outbound port.",
			"TCP from the proxy (uid 1337) to port 9090 of the pod itself: before redirects it to " +
				"15006, after lets it pass: excluded outbound port.",
			"TCP from no socket to port 9090 out of the pod: before redirects it to 15001, after " +
				"lets it pass: excluded outbound port.",
		},
		"include IPv6 only": {
			"TCP from anybody but the proxy out of the pod over IPv4: before redirects it to " +
				"15001, after lets it pass: no rule of after is about it.",
			"TCP from anybody but the proxy to any but ::1 or 2001:db8:c::/48 out of the pod: " +
				"before redirects it to 15001, after lets it pass: no rule of after is about it.",
		},
		"exclude groups": {
			"TCP from gid 4000 or 4002 out of the pod: before redirects it to 15001, after lets " +
				"it pass: excluded group.",
		},
		"exclude interfaces by prefix": {
			"TCP that enters to port any but 15008, 15020 to 15021 or 15090 through ext... or " +
				"nonesuch: before redirects it to 15006, after lets it pass: excluded interface.",
			"TCP from anybody but the proxy through ext... or nonesuch: before redirects it to " +
				"15001, after lets it pass: excluded interface.",
		},
		"drop invalid": {
			"Everything out of any connection that enters: before lets it pass, after drops it: " +
				"out of any connection.",
		},
	} {
		got := explained(t, matrix.Plain(), option(name), len(want))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What only a packet that no kernel makes would show is counted.
func TestImpossiblePacketsAreCounted(t *testing.T) {
	t.Parallel()
	lines := explained(t, matrix.Plain(), option("tproxy"), 1000)
	last := lines[len(lines)-1]
	if !strings.HasSuffix(last, "more would take marks on packets that have none yet.") {
		t.Errorf("the last line is %q", last)
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "TCP that enters") && strings.Contains(line, "with mark 1337:") {
			t.Errorf("a packet enters with a mark: %s", line)
		}
	}
}

// The lines of a listing are their own reason.
func TestAListingsLineIsTheReason(t *testing.T) {
	t.Parallel()
	other, _ := secondPen(t, option("exclude one outbound port"), true)
	text := compare.Explain(
		compare.Compare(simulate.New(redirect.Compile(policyOf(t, matrix.Plain()))), other),
		compare.Words{A: "the pod", B: "istio-init"})
	const want = "out of the pod: the pod redirects it to 15001, istio-init lets it pass: " +
		"-A ISTIO_OUTPUT -p tcp --dport 9090 -j RETURN."
	if !strings.Contains(text, want) {
		t.Errorf("want a sentence with %q:\n%s", want, text)
	}
}

// Every field of a class is in its example, and each example differs.
func TestExamplesDiffer(t *testing.T) {
	t.Parallel()
	for _, r := range matrix.Alone() {
		a := simulate.New(redirect.Compile(policyOf(t, option("tproxy"))))
		b := simulate.New(redirect.Compile(policyOf(t, r)))
		for _, d := range compare.Compare(a, b) {
			one := d.Example.Class()
			fateA, fateB := fateOf(a, one), fateOf(b, one)
			if !d.Class.Has(d.Example) || same(fateA, fateB) {
				t.Errorf("%s: %+v: in its class %t, %s and %s", r.Name, d.Example,
					d.Class.Has(d.Example), fateA, fateB)
			}
			for side, met := range map[string][2]int{
				"A": {len(d.A.Met), len(simulateMet(a, d))}, "B": {len(d.B.Met), len(simulateMet(b, d))},
			} {
				if met[0] != met[1] {
					t.Errorf("%s: %d rules met on side %s, want %d", r.Name, met[0], side, met[1])
				}
			}
		}
	}
}

func simulateMet(side packet.Side, d compare.Difference) []string {
	fate, _ := side.Fate(d.Example.Class())
	var names []string
	for _, m := range fate.Met {
		names = append(names, m.String())
	}
	return names
}

// Whoever compares the two modes wants to know where connections go, not which marks make them.
func TestConnectionsComeFirst(t *testing.T) {
	t.Parallel()
	usual := simulate.New(redirect.Compile(policyOf(t, option("default"))))
	for name, most := range map[string]int{"tproxy": 8, "drop invalid": 4} {
		differences := compare.Compare(usual, simulate.New(redirect.Compile(policyOf(t,
			option(name)))))
		first, rest := compare.Connections(differences)
		if len(first) == 0 || len(first) > most || len(first)+len(rest) != len(differences) {
			t.Errorf("%s: %d and %d of %d differences", name, len(first), len(rest),
				len(differences))
		}
		for _, d := range first {
			p := d.Class.Example()
			if p.Mark != 0 || p.ConnMark != 0 || d.A.Outcome == d.B.Outcome {
				t.Errorf("%s: %+v: %s and %s", name, p, d.A, d.B)
			}
		}
	}
}
