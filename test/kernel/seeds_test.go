package kernel

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// istioInit is a command line of istio-init that was published with the rules that it made, and the
// pod that asks for the same. The fates are written down from the published rules; 0 is: left
// alone.
type istioInit struct {
	name  string
	args  []string
	pod   matrix.Request
	fates map[call]uint16
}

var (
	app        = netns.Identity{UID: 1000, GID: 1000}
	proxyUser  = netns.Identity{UID: 1337, GID: 1337}
	proxyGroup = netns.Identity{UID: 1000, GID: 1337}
)

func sends(as netns.Identity, to string) call {
	return call{from: "pod", as: as, proto: redirect.TCP, to: netip.MustParseAddrPort(to)}
}

func asks(as netns.Identity, to string) call {
	return call{from: "pod", as: as, proto: redirect.UDP, to: netip.MustParseAddrPort(to)}
}

func enters(to string) call {
	return call{from: "peer", proto: redirect.TCP, to: netip.MustParseAddrPort(to)}
}

func published() []istioInit {
	older := matrix.Annotation("", matrix.Traffic+"includeInboundPorts", "80").On(matrix.Plain())
	older.Config.Ports.Inbound = 15001
	return []istioInit{
		{
			name: "Istio 1.6",
			args: []string{"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*",
				"-x", "", "-b", "*", "-d", "15090,15021,15020"},
			pod: matrix.Plain(),
			fates: map[call]uint16{
				enters("10.244.0.2:80"): 15006, enters("10.244.0.2:8080"): 15006,
				enters("10.244.0.2:53"):    15006,
				enters("10.244.0.2:15020"): 0, enters("10.244.0.2:15021"): 0,
				enters("10.244.0.2:15090"): 0,
				sends(app, "192.0.2.7:80"): 15001, sends(app, "192.0.2.7:53"): 15001,
				sends(app, "203.0.113.7:15020"):  15001,
				sends(proxyUser, "192.0.2.7:80"): 0, sends(proxyGroup, "192.0.2.7:80"): 0,
				sends(app, "127.0.0.1:80"): 0, sends(proxyUser, "127.0.0.1:80"): 0,
				sends(proxyGroup, "127.0.0.1:80"): 0,
				sends(app, "127.0.0.2:80"):        0, sends(proxyUser, "127.0.0.2:80"): 15006,
				sends(app, "10.244.0.2:80"): 0, sends(proxyUser, "10.244.0.2:80"): 15006,
				sends(proxyUser, "10.244.0.2:15020"): 15006,
				sends(proxyGroup, "10.244.0.2:80"):   0,
				asks(app, "192.0.2.53:53"):           0, asks(proxyUser, "192.0.2.53:53"): 0,
			},
		},
		{
			// Calls of the app to its own address by the pod's IP are left out: these rules caught
			// them, since those that leave what stays within the pod alone came later. The contract
			// has them.
			name: "Istio 1.0, one port both ways",
			args: []string{"-p", "15001", "-z", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*",
				"-x", "", "-b", "80", "-d", ""},
			pod: older,
			fates: map[call]uint16{
				enters("10.244.0.2:80"): 15001, enters("10.244.0.2:8080"): 0,
				enters("10.244.0.2:15020"): 0,
				sends(app, "192.0.2.7:80"): 15001, sends(app, "198.51.100.9:53"): 15001,
				sends(proxyUser, "192.0.2.7:80"): 0, sends(proxyGroup, "192.0.2.7:80"): 0,
				sends(app, "127.0.0.1:80"): 0, sends(proxyUser, "127.0.0.1:80"): 0,
				sends(proxyUser, "10.244.0.2:80"): 15001, sends(proxyUser, "127.0.0.2:8080"): 15001,
				asks(app, "192.0.2.53:53"): 0,
			},
		},
	}
}

// TestPublishedListings gives the published inputs, as flags and as a pod, and expects the
// published fates.
func TestPublishedListings(t *testing.T) {
	netns.RequireRoot(t)
	for _, seed := range published() {
		flags, err := initflags.Policy(seed.args, nil, redirect.Defaults())
		if err != nil {
			t.Fatalf("%s: %v", seed.name, err)
		}
		pod, _ := compile(t, seed.pod)
		for as, policy := range map[string]redirect.Policy{"flags": flags, "pod": pod} {
			for _, d := range dialects(t) {
				t.Run(fmt.Sprintf("%s/%s/%s", seed.name, as, d.name), func(t *testing.T) {
					t.Parallel()
					seed.hold(t, d, policy)
				})
			}
		}
	}
}

func (seed istioInit) hold(t *testing.T, d dialect, policy redirect.Policy) {
	t.Helper()
	rs := redirect.Compile(policy)
	pod := netns.NewPod(t, netns.Options{})
	apply(t, d, pod.NS, rs)
	listen(t, pod, policy)
	var all []call
	for c, port := range seed.fates {
		fate := simulate.Packet(rs, c.packet())
		if (fate.Outcome == packet.Redirected) != (port != 0) || fate.Port != port {
			t.Errorf("%s: want port %d (0: left alone), simulated: %s", c, port, fate)
		}
		all = append(all, c)
	}
	wantFates(t, pod, policy, rs, all)
}
