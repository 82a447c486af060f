package kernel

import (
	"fmt"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// side is rules, and a pod that has them.
type side struct {
	name  string
	rules packet.Side
	pod   *netns.Pod

	answered map[bears]string // what the probe should have recorded, and of which call
}

// rig sends packets in two pods and compares what becomes of them with their fates.
type rig struct {
	sender
	policy redirect.Policy
	sides  []*side

	calls  uint16               // so far
	unsent map[packet.Field]int // classes, by what forbids it
}

// setUp makes the pods and starts the app and the proxy in them. The app answers for whatever
// address a mark brings to it, and refusals of datagrams are not rationed.
func (r *rig) setUp(t testing.TB) {
	t.Helper()
	r.unsent = map[packet.Field]int{}
	app := theApp
	app.Transparent = true
	for _, s := range r.sides {
		s.pod, s.answered = netns.NewPod(t, netns.Options{}), map[bears]string{}
		for _, ns := range []*netns.NS{s.pod.NS, s.pod.Peer, s.pod.VM} {
			ns.Sysctl(t, "net/ipv4/icmp_ratelimit", "0")
			ns.Sysctl(t, "net/ipv6/icmp/ratelimit", "0")
		}
		s.pod.Run(t, probe, "nft", "-f", "-")
		s.pod.Listen(t, app)
		listenAsProxy(t, s.pod, r.policy)
	}
}

// choose returns a call whose first packet is in the class, or counts what forbids it.
func (r *rig) choose(t testing.TB, class packet.Class) (c call, found bool) {
	t.Helper()
	// Answers to what a pod with TPROXY only forwards are diverted: it takes them for its own.
	forwards := r.routed.Empty()
	for _, s := range r.sides {
		f, question := s.rules.Fate(class)
		forwards = forwards || question == nil && f.Outcome != packet.Passes
	}
	c, forbids := r.find(class, forwards)
	if forbids != packet.NoField {
		r.unsent[forbids]++
		return call{}, false
	}
	// No two calls have the same port: else the kernel may have to translate one, and the records
	// of the probe would be mixed up.
	c.port = firstPort + r.calls%10000
	r.calls++
	if !class.Has(c.packet()) {
		t.Fatalf("%s: %+v is not in its class", c, c.packet())
	}
	return c, true
}

// send makes the call in both pods.
func (r *rig) send(t testing.TB, c call) {
	t.Helper()
	for _, s := range r.sides {
		fate, _ := s.rules.Fate(c.packet().Class())
		want, timeout := c.want(fate, r.policy.Ports), patient
		if want == "nobody" || t.Failed() { // what fails once may fail hundreds of times
			timeout = brief
		}
		result := c.make(t, s.pod, timeout)
		if got := c.got(result); got != want {
			t.Errorf("%s in the pod of %s:\n  answered %s\n  want     %s\n  %s", c, s.name, got,
				want, fate)
		}
		if result.Outcome == netns.Answered {
			s.answered[c.wantBorne(fate)] = fmt.Sprintf("%s: %s", c, fate)
		}
	}
}

// wantBorne compares what the answered calls bore with their fates.
func (r *rig) wantBorne(t testing.TB) {
	t.Helper()
	for _, s := range r.sides {
		seen := borne(t, s.pod.NS)
		for want, call := range s.answered {
			if seen[want] {
				continue
			}
			t.Errorf("in the pod of %s, want %s of %s", s.name, want, call)
			for b := range seen {
				if b.port == want.port && b.protocol == want.protocol {
					t.Errorf("  it had %s", b)
				}
			}
		}
		if len(s.answered) == 0 {
			t.Errorf("nobody answered in the pod of %s", s.name)
		}
	}
}

// takeUnsent says how many classes could not be sent since it was last asked, by the first field
// that forbids it.
func (r *rig) takeUnsent() string {
	names := map[packet.Field]string{packet.Interface: "Interface", packet.Protocol: "Protocol",
		packet.Source: "Source", packet.Destination: "Destination",
		packet.SourcePort: "SourcePort", packet.DestinationPort: "DestinationPort",
		packet.Socket: "Socket", packet.PacketMark: "PacketMark", packet.ConnMark: "ConnMark",
		packet.State: "State"}
	text := "not sent"
	for _, f := range packet.Fields {
		if n := r.unsent[f]; n > 0 {
			text += fmt.Sprintf(", %s %d", names[f], n)
		}
	}
	clear(r.unsent)
	return text
}
