package validation

import (
	"net/netip"
	"strings"
	"testing"
)

// Where a connection arrives is half of it: the proxy has to know what it was meant for.
func TestAConnectionIsKnownForWhatItIs(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	proxy, to := at("127.0.0.1:15006"), at("10.244.0.2:15002")
	for name, row := range map[string]struct {
		wanted, arrived, original netip.AddrPort
		seen                      string // "" is right
	}{
		"redirected":                      {proxy, proxy, to, ""},
		"meant for something else":        {proxy, proxy, at("10.244.0.2:80"), "as meant for 10.244.0.2:80"},
		"nobody knows what for":           {proxy, proxy, netip.AddrPort{}, "does not say what it was meant for"},
		"left alone":                      {to, to, to, ""},
		"left alone, and not tracked":     {to, to, netip.AddrPort{}, ""},
		"left alone, from something else": {to, to, proxy, "as meant for 127.0.0.1:15006"},
		"not redirected":                  {proxy, to, to, "arrives at 10.244.0.2:15002"},
		"nowhere":                         {proxy, netip.AddrPort{}, netip.AddrPort{}, "none of the ports"},
	} {
		a := trying{attempt: attempt{Path: Path{Protocol: protocolTCP, To: to},
			want: landing{at: row.wanted}}, arrived: row.arrived, original: row.original}
		if a.ok() != (row.seen == "") || !a.ok() && !strings.Contains(a.words(), row.seen) {
			t.Errorf("%s: ok %t, %s, want %q", name, a.ok(), a.words(), row.seen)
		}
	}
}
