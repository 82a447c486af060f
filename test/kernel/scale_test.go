package kernel

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// scattered returns n networks of which no two are neighbours.
func scattered(f redirect.Family, n int) []string {
	var cidrs []string
	for i := range n {
		if f == redirect.IPv4 {
			cidrs = append(cidrs, netip.PrefixFrom(netip.AddrFrom4([4]byte{20 + byte(i>>14),
				byte(i >> 7), byte(i<<1) & 0xff, 0}), 24).String())
			continue
		}
		cidrs = append(cidrs, netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/48", 2*i)).String())
	}
	return cidrs
}

// TestLongLists reads every element back with the kernel's own tool: a list that was cut short
// lists no error.
func TestLongLists(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		for _, f := range redirect.Families {
			for _, n := range []int{500, 1000, 1500, 10000} {
				t.Run(fmt.Sprintf("%s/%s/%d", d.name, f, n), func(t *testing.T) {
					t.Parallel()
					want := scattered(f, n)
					r := matrix.Annotation("", matrix.Traffic+"excludeOutboundIPRanges", strings.Join(want, ",")).
						On(matrix.Plain())
					_, rs := compile(t, r)
					ns := netns.New(t)
					apply(t, d, ns, rs)
					wantEvery(t, want, d.list(t, ns))
					wantSilence(t, d, ns, rs)
					remove(t, d, ns, rs)
				})
			}
		}
	}
}

func wantEvery(t *testing.T, want []string, listed string) {
	t.Helper()
	have := map[string]bool{}
	for _, word := range regexp.MustCompile(`[0-9a-f.:]+/\d+`).FindAllString(listed, -1) {
		have[word] = true
	}
	missing := 0
	for _, cidr := range want {
		if !have[cidr] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d networks are missing", missing, len(want))
	}
}

// TestProbe finds nothing missing on a kernel that has it all, leaves nothing behind, and names
// what is refused.
func TestProbe(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			ns := netns.New(t)
			before := d.list(t, ns)
			for range 2 {
				ns.Do(t, func() {
					for _, lack := range d.probe(t.Context()) {
						t.Errorf("probe: %s", lack)
					}
				})
			}
			if after := d.list(t, ns); after != before {
				t.Errorf("the probe left behind:\n%s", after)
			}
		})
	}
}
