package kernel

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

var (
	identities = []netns.Identity{
		{UID: 1000, GID: 1000}, {UID: 1000, GID: 1337}, {UID: 1337, GID: 1337}, {UID: 0, GID: 0},
		{UID: 0, GID: 1338},
		{UID: 2000, GID: 4000}, {UID: 3500, GID: 4001}, {UID: 2500, GID: 2500},
		{UID: 1340, GID: 4002},
	}
	destinations = map[redirect.Family][]string{
		redirect.IPv4: {"192.0.2.7", "192.0.2.53", "192.0.2.54", "198.51.100.9", "198.51.100.200",
			"203.0.113.7",
			"10.244.0.2", "10.245.0.2", "10.245.0.1", "127.0.0.1", "127.0.0.2"},
		redirect.IPv6: {"2001:db8::7", "2001:db8::53", "2001:db8:c::9", "2001:db8:d::9",
			"fd00:244::2", "fd00:245::2", "fd00:245::1", "::1"},
	}
	ports = []uint16{80, 8080, 9090, 53, 15008, 15020, 15030}
)

// calls lists what is worth trying: every identity to every kind of destination, and what enters
// from either side.
func calls() []call {
	var all []call
	for _, f := range redirect.Families {
		for _, to := range destinations[f] {
			for _, as := range identities {
				for _, port := range ports {
					all = append(all, call{from: "pod", as: as, proto: redirect.TCP,
						to: netip.AddrPortFrom(netip.MustParseAddr(to), port)})
				}
				// how often it refuses a datagram is rationed
				if !slices.Contains([]string{"10.245.0.1", "fd00:245::1"}, to) {
					all = append(all, call{from: "pod", as: as, proto: redirect.UDP,
						to: netip.AddrPortFrom(netip.MustParseAddr(to), 53)})
				}
			}
		}
	}
	passthrough := map[redirect.Family]string{redirect.IPv4: "127.0.0.6", redirect.IPv6: "::6"}
	for f, own := range map[redirect.Family][]netip.Addr{redirect.IPv4: {netns.PodIPv4,
		netns.ExtraIPv4}, redirect.IPv6: {netns.PodIPv6, netns.ExtraIPv6}} {
		for _, port := range append(slices.Clone(ports), 15021, 15090) {
			all = append(all,
				call{from: "pod", as: netns.Identity{UID: 1337, GID: 1337}, proto: redirect.TCP,
					source: netip.MustParseAddr(passthrough[f]),
					to:     netip.AddrPortFrom(own[0], port)},
				call{from: "peer", proto: redirect.TCP, to: netip.AddrPortFrom(own[0], port)},
				call{from: "vm", proto: redirect.TCP, to: netip.AddrPortFrom(own[1], port)})
			for _, to := range destinations[f][:4] {
				all = append(all, call{from: "vm", proto: redirect.TCP,
					to: netip.AddrPortFrom(netip.MustParseAddr(to), port)})
			}
		}
		all = append(all, call{from: "vm", proto: redirect.UDP,
			to: netip.AddrPortFrom(netip.MustParseAddr(destinations[f][1]), 53)})
	}
	return all
}

var theApp = netns.Listener{Who: "app", As: netns.Identity{UID: 1000, GID: 1000}, TCP: appPorts,
	UDP: []uint16{53}}

// listen starts the app and the proxy of a pod.
func listen(t testing.TB, pod *netns.Pod, p redirect.Policy) (proxy []*netns.Listening) {
	t.Helper()
	pod.Listen(t, theApp)
	return listenAsProxy(t, pod, p)
}

func listenAsProxy(t testing.TB, pod *netns.Pod, p redirect.Policy) []*netns.Listening {
	t.Helper()
	as := netns.Identity{UID: p.Proxy.UIDs[0], GID: p.Proxy.GIDs[0]}
	mine := []uint16{p.Ports.DNS}
	if p.Ports.Outbound != p.Ports.Inbound {
		mine = append(mine, p.Ports.Outbound)
	}
	return []*netns.Listening{
		pod.Listen(t, netns.Listener{Who: "proxy", As: as, TCP: mine, UDP: []uint16{p.Ports.DNS}}),
		pod.Listen(t, netns.Listener{Who: "proxy", As: as, TCP: []uint16{p.Ports.Inbound},
			Transparent: p.Mode == redirect.ModeTProxy}),
	}
}

// wantFates makes the calls and compares what happened with what package simulate says.
func wantFates(t *testing.T, pod *netns.Pod, p redirect.Policy, rs redirect.Ruleset, calls []call) {
	t.Helper()
	for _, c := range calls {
		fate := simulate.Packet(rs, c.packet())
		if len(rs.Routes) > 0 && fate.Outcome == packet.Passes && c.from == "vm" &&
			!isLocal(c.to.Addr()) {
			// answers to what the pod only forwards are diverted: the contract's TPROXY takes them
			// for the pod's own
			continue
		}
		want := c.want(fate, p.Ports)
		timeout := patient
		if want == "nobody" {
			timeout = brief
		}
		if got := c.got(c.make(t, pod, timeout)); got != want {
			t.Errorf("%s:\n  answered %s\n  want     %s\n  %s", c, got, want, fate)
		}
	}
}

// inPodsWithNeighbours runs f for every request in every dialect, in a pod that can talk.
func inPodsWithNeighbours(t *testing.T, requests []matrix.Request,
	f func(*testing.T, *netns.Pod, redirect.Policy, redirect.Ruleset)) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range requests {
				t.Run(testName(r), func(t *testing.T) {
					p, rs := compile(t, r)
					pod := netns.NewPod(t, netns.Options{})
					apply(t, d, pod.NS, rs)
					awaitRoute(t, pod.NS, "::6")
					f(t, pod, p, rs)
				})
			}
		})
	}
}

// awaitRoute waits for the kernel to finish what it begins with a new IPv6 address: a worker adds
// the local route.
func awaitRoute(t testing.TB, ns *netns.NS, addr string) {
	t.Helper()
	ns.Do(t, func() {
		await.Until(t, "the kernel has a local route to "+addr, func() bool {
			routes, err := netlink.RouteGet(net.ParseIP(addr))
			return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
		})
	})
}

// TestFates makes every call in a pod of every option by itself.
func TestFates(t *testing.T) {
	all := calls()
	inPodsWithNeighbours(t, matrix.Alone(),
		func(t *testing.T, pod *netns.Pod, p redirect.Policy, rs redirect.Ruleset) {
			listen(t, pod, p)
			wantFates(t, pod, p, rs, all)
		})
}

// TestFatesOfPairs makes some calls in a pod of every two options, the same ones in every dialect
// and every run.
func TestFatesOfPairs(t *testing.T) {
	all := calls()
	inPodsWithNeighbours(t, matrix.Pairs(),
		func(t *testing.T, pod *netns.Pod, p redirect.Policy, rs redirect.Ruleset) {
			const some = 60
			random := rand.New(rand.NewPCG(1, uint64(len(redirect.Explain(rs)))))
			listen(t, pod, p)
			var chosen []call
			for range some {
				chosen = append(chosen, all[random.IntN(len(all))])
			}
			wantFates(t, pod, p, rs, chosen)
		})
}
