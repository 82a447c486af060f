package kernel

import (
	"fmt"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables/istioinit"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// wantReadBack reads what iptables-save prints of a pod, with and without counters: every packet
// has the fate that it has by the ruleset.
func wantReadBack(t testing.TB, d dialect, ns *netns.NS, rs redirect.Ruleset) {
	t.Helper()
	if d.save == nil {
		return
	}
	var routed []uint32
	for _, r := range rs.Routes {
		routed = append(routed, r.Mark)
	}
	for _, args := range [][]string{nil, {"-c"}} {
		ipv4, ipv6 := d.save(t, ns, args...)
		printed := readTables(t, istioinit.Listing{IPv4: ipv4, IPv6: ipv6, Marks: routed})
		wantSame(t, simulate.New(rs), printed, compare.Words{A: "the ruleset",
			B: fmt.Sprintf("what %s-save %v prints", d.name, args)})
	}
}

func readTables(t testing.TB, l istioinit.Listing) *xtables.Tables {
	t.Helper()
	tables, err := xtables.Read(l.IPv4, l.IPv6)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, l.IPv4, l.IPv6)
	}
	tables.Routed = l.Marks
	return tables
}

func wantSame(t testing.TB, a, b packet.Side, w compare.Words) {
	t.Helper()
	differences := compare.Compare(a, b)
	if len(differences) == 0 {
		return
	}
	t.Errorf("%d differences:\n%s", len(differences), compare.Explain(differences, w))
	for _, d := range differences[:min(3, len(differences))] {
		t.Errorf("%+v, sent by %+v\nby %s it %s\nby %s it %s", d.Example, d.Example.Owner, w.A, d.A,
			w.B, d.B)
	}
}

// secondPen returns what istio-init writes, and what it and we were asked for.
func secondPen(t testing.TB, r matrix.Request, ipv6 bool) (istioinit.Listing, compare.Pod) {
	t.Helper()
	written, pod, err := matrix.SecondPen(r, ipv6)
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	return written, pod
}

// restore loads istio-init's rules as it does.
func restore(t testing.TB, ns *netns.NS, l istioinit.Listing) {
	t.Helper()
	for program, text := range map[string]string{"iptables": l.IPv4, "ip6tables": l.IPv6} {
		if text != "" {
			ns.Run(t, text, program+"-nft-restore", "--noflush")
		}
	}
}

// TestSecondPenInTheKernel loads istio-init's rules and reads back what iptables prints of them.
func TestSecondPenInTheKernel(t *testing.T) {
	netns.RequireRoot(t)
	t.Parallel()
	loaded := 0
	for _, r := range matrix.Alone() {
		if matrix.OursAlone(r) {
			continue
		}
		loaded++
		t.Run(testName(r), func(t *testing.T) {
			written, _ := secondPen(t, r, true)
			ns := netns.New(t)
			restore(t, ns, written)
			printed := istioinit.Listing{IPv4: ns.Run(t, "", "iptables-nft-save"),
				IPv6: ns.Run(t, "", "ip6tables-nft-save"), Marks: written.Marks}
			wantSame(t, readTables(t, written), readTables(t, printed),
				compare.Words{A: "istio-init's text", B: "what iptables-nft-save prints"})
		})
	}
	if loaded < 60 {
		t.Errorf("only %d policies", loaded)
	}
}
