package validation

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// site is what is known of the pod and of this process.
type site struct {
	owner packet.Owner
	addrs []netip.Addr // the pod's own, at most one a family, not on lo
	// route finds by which interface, and from which address, the pod would send to an address.
	route func(netip.Addr) (route, error)
}

type route struct {
	out    string
	source netip.Addr
}

// attempt is a path with what is expected of it.
type attempt struct {
	Path
	packet packet.Packet // the first
	want   landing
}

// planner collects the paths of one family.
type planner struct {
	policy  redirect.Policy
	site    site
	options Options
	own     netip.Addr // the pod's address
	family  redirect.Family

	paths []Path
}

const (
	protocolTCP = "TCP"
	protocolUDP = "UDP"
	portDNS     = 53
	portHTTP    = 80
	lo          = "lo"

	// maxOfEach bounds how many items of a list are tried: each is one rule's.
	maxOfEach = 8
)

// candidates are all paths that say something about a rule.
func candidates(policy redirect.Policy, s site, o Options) []Path {
	var all []Path
	for _, own := range s.addrs {
		p := planner{policy: policy, site: s, options: o, own: own, family: redirect.FamilyOf(own)}
		p.withinPod()
		p.outbound()
		p.names()
		all = append(all, p.paths...)
	}
	return all
}

// tcp adds a connection unless it is there.
func (p *planner) tcp(about string, to netip.Addr, port uint16) {
	p.add(Path{About: about, Protocol: protocolTCP, To: netip.AddrPortFrom(to, port)})
}

func (p *planner) add(path Path) {
	same := func(have Path) bool {
		return have.Protocol == path.Protocol && have.From == path.From && have.To == path.To
	}
	if !slices.ContainsFunc(p.paths, same) {
		p.paths = append(p.paths, path)
	}
}

// withinPod are calls of the pod to itself. istio-validation's own is that from loopback to the
// proxy's address.
func (p *planner) withinPod() {
	probe := p.options.ProbePort
	p.tcp("the pod's own address", p.own, probe)
	p.tcp("loopback", loopback(p.family), probe)
	if p.policy.Outbound.Loopback || p.family == redirect.IPv4 && p.policy.Loopback.Bits() < 32 {
		p.tcp("another address on loopback", netip.AddrFrom4([4]byte{127, 0, 0, 2}), probe)
	}
	through := p.passthrough()
	p.add(Path{About: "the address from which the proxy calls the app", Protocol: protocolTCP,
		From: loopback(p.family), To: netip.AddrPortFrom(through, probe)})
	p.add(Path{About: "as the proxy calls the app", Protocol: protocolTCP, From: through,
		To: netip.AddrPortFrom(p.own, probe)})
	p.tcp("the proxy's tunnel port", p.own, p.policy.Ports.Tunnel)
	for _, port := range firstOf(p.policy.Outbound.ExcludePorts) {
		p.tcp("excluded outbound port", p.own, port)
	}
}

// outbound are connections to somebody else.
func (p *planner) outbound() {
	p.tcp("somebody outside", p.elsewhere(), portHTTP)
	for _, port := range firstOf(p.policy.Outbound.Ports) {
		p.tcp("included outbound port", p.elsewhere(), port)
	}
	for _, cidr := range firstOf(p.policy.Outbound.CIDRs) {
		if redirect.FamilyOf(cidr.Addr()) == p.family {
			p.tcp("included CIDR", hostIn(cidr), portHTTP)
		}
	}
}

// names are questions to nameservers. Without capture they are as any other packet.
func (p *planner) names() {
	if !p.policy.DNS.Capture {
		return
	}
	servers := p.policy.DNS.Servers
	if p.policy.DNS.Everywhere {
		servers = append([]netip.Addr{p.elsewhere(), loopback(p.family)}, p.options.Nameservers...)
	}
	ofFamily := func(a netip.Addr) bool { return redirect.FamilyOf(a) != p.family }
	servers = slices.DeleteFunc(slices.Clone(servers), ofFamily)
	for _, server := range append(firstOf(servers), p.own, loopback(p.family)) {
		to := netip.AddrPortFrom(server, portDNS)
		for _, protocol := range []string{protocolUDP, protocolTCP} {
			p.add(Path{About: "name service", Protocol: protocol, To: to})
		}
	}
}

func firstOf[T any](list []T) []T { return slices.Clip(list[:min(len(list), maxOfEach)]) }

// elsewhere is an address that nobody has (RFC 5737, RFC 3849).
func (p *planner) elsewhere() netip.Addr {
	if p.family == redirect.IPv4 {
		return netip.AddrFrom4([4]byte{192, 0, 2, 7})
	}
	return netip.MustParseAddr("2001:db8::7")
}

func (p *planner) passthrough() netip.Addr {
	i := slices.IndexFunc(p.policy.Passthrough,
		func(a netip.Addr) bool { return redirect.FamilyOf(a) == p.family })
	return p.policy.Passthrough[i]
}

// hostIn is an address of a network that is not its first, unless it has one only.
func hostIn(cidr netip.Prefix) netip.Addr {
	first := cidr.Masked().Addr()
	if next := first.Next(); next.IsValid() && cidr.Contains(next) {
		return next
	}
	return first
}

func loopback(f redirect.Family) netip.Addr {
	if f == redirect.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// first is the packet that begins a path. Its source's port is any from which nobody answers.
func (s site) first(path Path, policy redirect.Policy) (packet.Packet, error) {
	const anyPort = 40000
	to := path.To.Addr()
	owner := s.owner
	p := packet.Packet{Protocol: redirect.TCP, Destination: path.To, Owner: &owner, Out: lo}
	if path.Protocol == protocolUDP {
		p.Protocol = redirect.UDP
	}
	source := to // the kernel takes the address that is called
	switch {
	case slices.Contains(s.addrs, to), slices.Contains(policy.Passthrough, to):
	case to.IsLoopback():
		source = loopback(redirect.FamilyOf(to))
	default:
		way, err := s.route(to)
		if err != nil {
			return p, fmt.Errorf("no route: %w", err)
		}
		p.Out, source = way.out, way.source
	}
	if path.From.IsValid() {
		source = path.From
	}
	p.Source = netip.AddrPortFrom(source, anyPort)
	return p, nil
}
