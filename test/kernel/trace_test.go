package kernel

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// A traced connection begins with the packet with which the real one does that TestFates makes.
func TestATraceBeginsAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	policy, _ := compile(t, matrix.Plain())
	pod := trace.Pod{Policy: policy,
		Addrs: []netip.Addr{netns.PodIPv4, netns.PodIPv6, netns.ExtraIPv4, netns.ExtraIPv6}}
	traced := 0
	for _, c := range calls() {
		want := c.packet()
		if c.from != "pod" || c.source.IsValid() || c.mark != 0 || c.to.Addr().IsLoopback() ||
			want.Out == "extra0" {
			continue // what a trace is not asked for, or only with more than a destination
		}
		legs, err := trace.Follow(pod, trace.Talk{From: trace.Sender{UID: c.as.UID, GID: c.as.GID},
			To: c.to, UDP: c.proto == redirect.UDP})
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if diff := cmp.Diff(want, legs[0].Packet, cmp.Comparer(func(a, b netip.AddrPort) bool {
			return a == b
		})); diff != "" {
			t.Errorf("%s (-kernel +trace):\n%s", c, diff)
		}
		traced++
	}
	if traced < 100 {
		t.Errorf("%d calls were compared", traced)
	}
}
