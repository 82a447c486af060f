package routing

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// What people may type instead, in the order in which it is done.
func TestRender(t *testing.T) {
	t.Parallel()
	rs := redirect.Ruleset{
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.6/32"),
			netip.MustParsePrefix("::6/128")},
		Routes: []redirect.PolicyRoute{{Mark: 1337, Table: 133}},
	}
	want := []string{
		"ip address add 127.0.0.6/32 dev lo", "ip address add ::6/128 dev lo",
		"ip route add local default dev lo table 133", "ip rule add fwmark 0x539 lookup 133",
		"ip -6 route add local default dev lo table 133",
		"ip -6 rule add fwmark 0x539 lookup 133",
	}
	if diff := cmp.Diff(want, Render(rs)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
