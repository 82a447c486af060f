package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// opened opens a namespace as sidecarctl does.
func opened(t testing.TB, ns *netns.NS) *podns.Namespace {
	t.Helper()
	host, err := podns.FindHost("/proc", "the test")
	if err != nil {
		t.Fatal(err)
	}
	n, err := host.Open(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// tracedPod is a pod whose packets are traced.
type tracedPod struct {
	*netns.Pod
	opened *podns.Namespace
	rules  redirect.Ruleset
}

func newTracedPod(t testing.TB, d dialect, rs redirect.Ruleset) tracedPod {
	t.Helper()
	pod := netns.NewPod(t, netns.Options{})
	apply(t, d, pod.NS, rs)
	awaitRoute(t, pod.NS, "::6")
	return tracedPod{pod, opened(t, pod.NS), rs}
}

// live sends the packet that begins a call and returns the kernel's way, and what is simulated for
// it.
func (p tracedPod) live(t testing.TB, c call) (nftrace.Way, packet.Fate, error) {
	t.Helper()
	sent := c.packet()
	if !c.source.IsValid() && sent.In == "" {
		sent.Source = netip.AddrPort{}
	}
	way, err := nftrace.Send(t.Context(), p.opened, nftrace.Request{Packet: sent, Rules: p.rules,
		Nodes: []string{p.Peer.Path(), p.VM.Path()}})
	if err != nil {
		return way, packet.Fate{}, err
	}
	began := way.Packet()
	began.Owner = sent.Owner
	return way, simulate.Packet(p.rules, began), nil
}

// drawWay is a way for the message of a test.
func drawWay(w nftrace.Way) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s→%s in %q out %q", w.Protocol, w.Source, w.Destination, w.In, w.Out)
	for _, r := range w.Rules {
		fmt.Fprintf(&b, "\n    %s %s %d: %s %q %s", r.Table, r.Chain, r.Number, r.Place, r.Comment,
			r.Verdict)
	}
	return b.String() + "\n    " + w.End.String()
}

// backendsWithReports are those whose rules the kernel reports.
func backendsWithReports(t testing.TB) []dialect {
	return []dialect{dialectOf(t, redirect.NFTables), dialectOf(t, redirect.IptablesNFT)}
}

// somePods are what the pods of a dialect ask for: each option by itself, where pods are made fast,
// and some of every two, the same ones in every run.
func somePods(d dialect) []matrix.Request {
	var some []matrix.Request
	pairs := matrix.Pairs()
	random := rand.New(rand.NewPCG(16, uint64(len(d.name))))
	for range 25 {
		some = append(some, pairs[random.IntN(len(pairs))])
	}
	if d.name == redirect.NFTables {
		some = append(some, matrix.Alone()...)
	}
	return some
}

// escapes counts what gets past the place at which a traced packet is dropped: what comes to
// listeners of the pod, and what its neighbours get.
const escapes = `table inet escapes {
	chain in {
		type filter hook input priority 300
		meta l4proto { tcp, udp } counter
	}
	chain out {
		type filter hook postrouting priority 300
		oifname != "lo" meta l4proto { tcp, udp } counter
	}
}`

// wantNoEscapes fails if a packet of TCP or UDP has got anywhere.
func (p tracedPod) wantNoEscapes(t *testing.T) {
	t.Helper()
	for _, line := range []string{"in", "out"} {
		listing := p.Run(t, "", "nft", "list", "chain", "inet", "escapes", line)
		if !strings.Contains(listing, "counter packets 0 bytes 0") {
			t.Errorf("a traced packet escaped:\n%s", listing)
		}
	}
	if left := p.Run(t, "", "conntrack", "-L"); strings.TrimSpace(left) != "" {
		t.Errorf("conntrack still has connections:\n%s", left)
	}
	for _, table := range listed(t, p.NS) {
		if strings.HasPrefix(table.Name, "sidecar-cni-trace") {
			t.Errorf("table %s is still there", table.Name)
		}
	}
}

// What the kernel reports of a packet is what is simulated for it and what becomes of a real
// connection, in pods with every option, in both dialects; and the packet reaches nobody.
func TestLiveIsAsSimulated(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	all := calls()
	for _, d := range backendsWithReports(t) {
		for i, r := range somePods(d) {
			t.Run(d.name+"/"+testName(r), func(t *testing.T) {
				t.Parallel()
				p, rs := compile(t, r)
				pod := newTracedPod(t, d, rs)
				pod.Run(t, escapes, "nft", "-f", "-")
				listen(t, pod.Pod, p)
				random := rand.New(rand.NewPCG(15, uint64(i)))
				var sent []call
				for range 12 {
					c := all[random.IntN(len(all))]
					way, fate, err := pod.live(t, c)
					if err != nil {
						t.Errorf("%s: %v", c, err)
						continue
					}
					if same := way.Compare(fate); !same.Same {
						t.Errorf("%s: %s\n  %s\n  %s", c, same.Says, drawWay(way), fate)
					}
					sent = append(sent, c)
				}
				pod.wantNoEscapes(t)
				wantFates(t, pod.Pod, p, rs, sent[:2])
			})
		}
	}
}
