package validation

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
)

// call is one that the container makes. Where to is unspecified, the pod's own address calls
// itself, which is known to the container only.
type call struct {
	from netip.Addr
	to   netip.AddrPort
}

func (c call) String() string { return c.from.String() + ">" + c.to.String() }

// firstPort is what Istio's own validation calls, and nobody serves. The next ones are taken where
// that is not redirected.
const firstPort = 15002

// families say where calls come from, and which addresses stand in for the pod's own.
var families = []struct{ from, own netip.Addr }{
	{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")},
	{netip.IPv6Loopback(), netip.MustParseAddr("2001:db8::1")},
}

// choose returns one call for each family that the rules of the policy bring to the inbound port:
// to the address by which the proxy calls the app, which every pod has, or to the pod's own where
// the pod has that one count as loopback.
func choose(p redirect.Policy, taken []uint16) ([]call, error) {
	rules := simulate.New(redirect.Compile(p))
	port, ok := freePort(p, taken)
	if !ok {
		return nil, errors.New("no call of the pod to itself is redirected, since " +
			"traffic.sidecar.istio.io/excludeOutboundPorts has all ports that are free: remove " +
			"one; " + orElse)
	}
	var calls []call
	for _, f := range families {
		usual := call{f.from, netip.AddrPortFrom(passthrough(p, f.from), port)}
		own := call{f.own, netip.AddrPortFrom(f.own, port)}
		switch {
		case arrives(rules, p, usual):
			calls = append(calls, usual)
		case arrives(rules, p, own):
			calls = append(calls, call{f.from, netip.AddrPortFrom(unspecified(f.own), port)})
		default:
			return nil, obstacle(p)
		}
	}
	return calls, nil
}

// freePort returns a port that nobody of the pod has and that is not excluded.
func freePort(p redirect.Policy, taken []uint16) (port uint16, ok bool) {
	const portDNS, ports = 53, 1<<16 - 1
	not := map[uint16]bool{portDNS: true, p.Ports.Outbound: true, p.Ports.Inbound: true,
		p.Ports.Tunnel: true, p.Ports.DNS: true}
	for _, port := range slices.Concat(taken, p.Outbound.ExcludePorts) {
		not[port] = true
	}
	for i := range ports {
		port = uint16(1 + (firstPort-1+i)%ports)
		if !not[port] {
			return port, true
		}
	}
	return 0, false
}

func passthrough(p redirect.Policy, from netip.Addr) netip.Addr {
	i := slices.IndexFunc(p.Passthrough, func(a netip.Addr) bool { return a.Is4() == from.Is4() })
	return p.Passthrough[i]
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// arrives plays the first packet of a call.
func arrives(rules *simulate.Rules, p redirect.Policy, c call) bool {
	const anyPort = 40000 // the kernel chooses it
	class := packet.Packet{Out: lo, Protocol: redirect.TCP,
		Source: netip.AddrPortFrom(c.from, anyPort), Destination: c.to,
		Owner: &packet.Owner{UID: p.Proxy.UIDs[0], GID: p.Proxy.GIDs[0]}}.Class()
	fate, _ := rules.Fate(class) // one packet leaves nothing open
	return fate.Outcome == packet.Redirected && fate.Port == p.Ports.Inbound
}

const (
	lo     = "lo"
	orElse = "or set the chart's injector.guard to none, and have the nodes guard their pods"
)

// obstacle says why no call arrives.
func obstacle(p redirect.Policy) error {
	for _, name := range p.ExcludeInterfaces {
		if name.Holds(lo) {
			return fmt.Errorf("no call of the pod to itself is redirected, since "+
				"traffic.sidecar.istio.io/excludeInterfaces has %q, by which lo is left alone: "+
				"name the other interfaces; "+orElse, name)
		}
	}
	return errors.New("no call of the pod to itself is redirected by what it asks for: " + orElse)
}
