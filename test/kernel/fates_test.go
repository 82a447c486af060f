package kernel

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// call is a real connection, or datagram, and the packet that begins it.
type call struct {
	from   string // pod, peer or vm
	as     netns.Identity
	proto  redirect.Protocol
	source netip.Addr // unset: the kernel chooses
	mark   uint32
	to     netip.AddrPort
}

func (c call) String() string {
	text := fmt.Sprintf("%s from %s", c.proto, c.from)
	if c.from == "pod" {
		text += fmt.Sprintf(" as %d:%d", c.as.UID, c.as.GID)
	}
	if c.source.IsValid() {
		text += fmt.Sprintf(" by %s", c.source)
	}
	return fmt.Sprintf("%s to %s", text, c.to)
}

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

// Ports on which nobody but the proxy listens are left out: who answers there is not in question.
var appPorts = []uint16{80, 8080, 9090, 53, 15008, 15020, 15021, 15030, 15090, 25008}

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

// packet is the first packet of the call as the pod sees it.
func (c call) packet() packet.Packet {
	p := packet.Packet{Protocol: c.proto, Destination: c.to, Mark: c.mark,
		Source: netip.AddrPortFrom(c.source, 40000)}
	switch c.from {
	case "peer":
		p.In, p.Source = "eth0",
			netip.AddrPortFrom(pick(c.to, netns.PeerIPv4, netns.PeerIPv6), 40000)
	case "vm":
		p.In, p.Source = "extra0", netip.AddrPortFrom(pick(c.to, netns.VMIPv4, netns.VMIPv6), 40000)
	default:
		p.Owner = &packet.Owner{UID: c.as.UID, GID: c.as.GID}
		p.Out = route(c.to.Addr())
		if !c.source.IsValid() {
			p.Source = netip.AddrPortFrom(sourceFor(p.Out, c.to), 40000)
		}
	}
	return p
}

func route(to netip.Addr) string {
	switch {
	case isLocal(to):
		return "lo"
	case netip.MustParsePrefix("10.245.0.0/24").Contains(to),
		netip.MustParsePrefix("fd00:245::/64").Contains(to):
		return "extra0"
	}
	return "eth0"
}

func isLocal(a netip.Addr) bool {
	return a.IsLoopback() || a == netns.PodIPv4 || a == netns.PodIPv6 || a == netns.ExtraIPv4 ||
		a == netns.ExtraIPv6
}

func sourceFor(out string, to netip.AddrPort) netip.Addr {
	switch out {
	case "lo":
		return to.Addr()
	case "extra0":
		return pick(to, netns.ExtraIPv4, netns.ExtraIPv6)
	}
	return pick(to, netns.PodIPv4, netns.PodIPv6)
}

func pick(to netip.AddrPort, v4, v6 netip.Addr) netip.Addr {
	if to.Addr().Is4() {
		return v4
	}
	return v6
}

// want says who answers, if the packet has that fate.
func (c call) want(f packet.Fate, proxyPorts []uint16) string {
	answer := func(who string,
		port uint16) string {
		return fmt.Sprintf("%s on port %d for %s", who, port, c.to)
	}
	switch {
	case f.Outcome == packet.Dropped:
		return "nobody"
	case f.Outcome == packet.Redirected, f.Outcome == packet.Handed:
		return answer("proxy", f.Port)
	case c.from == "vm" && !isLocal(c.to.Addr()), c.from == "pod" && !f.Local:
		return c.outside(answer)
	case slices.Contains(proxyPorts, c.to.Port()):
		return answer("proxy", c.to.Port())
	}
	return answer("app", c.to.Port())
}

// outside says who answers beyond the pod: the virtual machine listens on no port.
func (c call) outside(answer func(string, uint16) string) string {
	if c.to.Addr() == netns.VMIPv4 || c.to.Addr() == netns.VMIPv6 {
		return "refused"
	}
	return answer("peer", c.to.Port())
}

// got says who answered, in the same words.
func (c call) got(r netns.Result) string {
	switch r.Outcome {
	case netns.Answered:
	case netns.TimedOut:
		return "nobody"
	case netns.Refused:
		return "refused"
	default:
		return r.String()
	}
	asked, port := r.Local, r.Port
	if r.Original.IsValid() {
		asked = r.Original
	}
	if r.Who == "peer" {
		port = c.to.Port()
	}
	if c.proto == redirect.UDP {
		asked = c.to // a datagram's answer counts only from whom it was sent to
	}
	return fmt.Sprintf("%s on port %d for %s", r.Who, port, asked)
}

// How long a call waits for an answer: briefly where none should come, and long enough for a busy
// machine, on which the kernel may have to repeat a packet, where one should.
const (
	brief   = 300 * time.Millisecond
	patient = 10 * time.Second
)

func (c call) make(t testing.TB, pod *netns.Pod, timeout time.Duration) netns.Result {
	network := map[redirect.Protocol]string{redirect.TCP: "tcp", redirect.UDP: "udp"}[c.proto]
	dial := netns.Call{As: c.as, Network: network, From: c.source, Mark: c.mark, To: c.to,
		Timeout: timeout}
	switch c.from {
	case "peer":
		return pod.Peer.Dial(t, dial)
	case "vm":
		return pod.VM.Dial(t, dial)
	}
	return pod.Dial(t, dial)
}

// listen starts the app and the proxy of a pod.
func listen(t testing.TB, pod *netns.Pod, p redirect.Policy) (proxy []*netns.Listening) {
	t.Helper()
	as := netns.Identity{UID: p.Proxy.UIDs[0], GID: p.Proxy.GIDs[0]}
	mine := []uint16{p.Ports.DNS}
	if p.Ports.Outbound != p.Ports.Inbound {
		mine = append(mine, p.Ports.Outbound)
	}
	pod.Listen(t, netns.Listener{Who: "app", As: netns.Identity{UID: 1000, GID: 1000},
		TCP: appPorts, UDP: []uint16{53}})
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
		want := c.want(fate, []uint16{p.Ports.Outbound, p.Ports.Inbound, p.Ports.DNS})
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
		for deadline := time.Now().Add(10 * time.Second); time.Now().
			Before(deadline); runtime.Gosched() {
			routes, err := netlink.RouteGet(net.ParseIP(addr))
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				return
			}
		}
		t.Errorf("the kernel has no local route to %s", addr)
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
