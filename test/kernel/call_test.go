package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// call is a real connection, or datagram, and the packet that begins it.
type call struct {
	from    string // pod, peer or vm
	as      netns.Identity
	proto   redirect.Protocol
	source  netip.Addr // unset: the kernel chooses; from the peer it may be anybody's
	port    uint16     // of the source; unset: the kernel chooses
	mark    uint32
	through string // the interface by which it leaves the pod; unset: as without a mark
	to      netip.AddrPort
}

func (c call) String() string {
	text := fmt.Sprintf("%s from %s", c.proto, c.from)
	if c.from == "pod" {
		text += fmt.Sprintf(" as %d:%d", c.as.UID, c.as.GID)
	}
	if c.source.IsValid() {
		text += fmt.Sprintf(" by %s", c.source)
	}
	if c.mark != 0 {
		text += fmt.Sprintf(" with mark %d", c.mark)
	}
	return fmt.Sprintf("%s to %s", text, c.to)
}

// Ports on which nobody but the proxy listens are left out: who answers there is not in question.
var appPorts = []uint16{80, 8080, 9090, 53, 15008, 15020, 15021, 15030, 15090, 25008}

// packet is the first packet of the call as the pod sees it.
func (c call) packet() packet.Packet {
	p := packet.Packet{Protocol: c.proto, Destination: c.to, Mark: c.mark,
		Source: netip.AddrPortFrom(c.source, cmp.Or(c.port, 40000))}
	switch c.from {
	case "peer":
		p.In = "eth0"
	case "vm":
		p.In = "extra0"
	default:
		p.Owner = &packet.Owner{UID: c.as.UID, GID: c.as.GID}
		p.Out = cmp.Or(c.through, route(c.to.Addr()))
	}
	if !c.source.IsValid() {
		p.Source = netip.AddrPortFrom(c.usualSource(p.Out), p.Source.Port())
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

// own are the pod's addresses, but for all that 127.0.0.0/8 is.
var own = map[redirect.Family][]netip.Addr{
	redirect.IPv4: {netns.PodIPv4, netns.ExtraIPv4, netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.6")},
	redirect.IPv6: {netns.PodIPv6, netns.ExtraIPv6, netip.IPv6Loopback(),
		netip.MustParseAddr("::6")},
}

func isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(own[redirect.FamilyOf(a)], a)
}

// usualSource is the address that the kernel chooses.
func (c call) usualSource(out string) netip.Addr {
	switch {
	case c.from == "peer":
		return pick(c.to, netns.PeerIPv4, netns.PeerIPv6)
	case c.from == "vm":
		return pick(c.to, netns.VMIPv4, netns.VMIPv6)
	case out == "lo":
		return c.to.Addr()
	case out == "extra0":
		return pick(c.to, netns.ExtraIPv4, netns.ExtraIPv6)
	}
	return pick(c.to, netns.PodIPv4, netns.PodIPv6)
}

func pick(to netip.AddrPort, v4, v6 netip.Addr) netip.Addr {
	if to.Addr().Is4() {
		return v4
	}
	return v6
}

// want says who answers, if the packet has that fate.
func (c call) want(f packet.Fate, proxy redirect.Listen) string {
	answer := func(who string, port uint16) string {
		return fmt.Sprintf("%s on port %d for %s", who, port, c.to)
	}
	switch f.Outcome {
	case packet.Dropped:
		return "nobody"
	case packet.Redirected, packet.Handed:
		return answer("proxy", f.Port)
	case packet.Passes:
	}
	inside := isLocal(c.to.Addr())
	if c.from == "pod" {
		inside = f.Local
	}
	if who := c.listener(inside, proxy); who != "" {
		return answer(who, c.to.Port())
	}
	if inside && !isLocal(c.to.Addr()) && c.proto == redirect.TCP {
		return "nobody" // the reset would come from an address that is not the pod's: it has no way
	}
	return "refused"
}

// listener is who listens where the call was meant to go, if anybody does. The virtual machine
// listens on no port.
func (c call) listener(inside bool, l redirect.Listen) string {
	app, proxy := appPorts, []uint16{l.Outbound, l.Inbound, l.DNS}
	if c.proto == redirect.UDP {
		app, proxy = []uint16{53}, proxy[2:]
	}
	port := c.to.Port()
	switch {
	case inside && slices.Contains(proxy, port):
		return "proxy"
	case inside && slices.Contains(app, port):
		return "app"
	case inside, c.to.Addr() == netns.VMIPv4, c.to.Addr() == netns.VMIPv6:
		return ""
	case c.proto == redirect.TCP, port == 53:
		return "peer"
	}
	return ""
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
	patient = time.Minute
)

func (c call) make(t testing.TB, pod *netns.Pod, timeout time.Duration) netns.Result {
	network := map[redirect.Protocol]string{redirect.TCP: "tcp", redirect.UDP: "udp"}[c.proto]
	dial := netns.Call{As: c.as, Network: network, From: c.source, FromPort: c.port, Mark: c.mark,
		To: c.to, Transparent: c.from == "peer" && c.source.IsValid(), Timeout: timeout}
	switch c.from {
	case "peer":
		return pod.Peer.Dial(t, dial)
	case "vm":
		return pod.VM.Dial(t, dial)
	}
	return pod.Dial(t, dial)
}
