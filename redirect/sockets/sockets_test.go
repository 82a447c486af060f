package sockets_test

import (
	"net/netip"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/sockets"
)

func TestReceives(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		local, to string
		v6only    bool
		want      bool
	}{
		{"0.0.0.0:80", "10.0.0.1:80", false, true},
		{"0.0.0.0:80", "10.0.0.1:81", false, false},
		{"0.0.0.0:80", "[fd00::1]:80", false, false},
		{"[::]:80", "[fd00::1]:80", false, true},
		{"[::]:80", "10.0.0.1:80", false, true},
		{"[::]:80", "[::ffff:10.0.0.1]:80", true, false},
		{"[::]:80", "10.0.0.1:80", true, false},
		{"[::]:80", "[fd00::1]:80", true, true},
		{"127.0.0.1:80", "127.0.0.1:80", false, true},
		{"127.0.0.1:80", "10.0.0.1:80", false, false},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", false, true},
		{"[fe80::1]:80", "[fe80::1%eth0]:80", false, true},
	} {
		s := sockets.Socket{Local: netip.MustParseAddrPort(test.local), V6Only: test.v6only}
		if got := s.Receives(netip.MustParseAddrPort(test.to)); got != test.want {
			t.Errorf("%s, only IPv6 %v: receives %s: %v", test.local, test.v6only, test.to, got)
		}
	}
}
