package redirect_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/sidecar-cni/sidecar-cni/redirect" //nolint:revive // these tests are the package's own
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
)

// The addresses of the tables, in either family.
const (
	podIP    = "10.244.0.5"
	world    = "203.0.113.7"
	network  = "198.51.100.9"
	resolver = Resolver
	itself   = "127.0.0.1"
	through  = "127.0.0.6" // the proxy's address when it calls the app
)

var inIPv6 = map[string]string{
	podIP: "fd00::5", world: "2001:db8:d::7", network: "2001:db8:c::9", resolver: "2001:db8::53",
	itself: "::1", through: "::6",
}

// Those who send.
var (
	app       = &packet.Owner{UID: 1000, GID: 1000}
	envoy     = &packet.Owner{UID: 1337, GID: 1337}
	rootProxy = &packet.Owner{UID: 0, GID: 1337} // a proxy that runs as root
	someone   = &packet.Owner{UID: 3000, GID: 4000}
	nobody    *packet.Owner // the kernel
)

// Packet is a packet that can be changed by the word, and Fate a fate.
type (
	Packet packet.Packet
	Fate   packet.Fate
)

func played(rs Ruleset, p Packet) Fate { return Fate(simulate.Packet(rs, packet.Packet(p))) }

func (f Fate) String() string { return packet.Fate(f).String() }

// send is a packet that leaves for an address; what goes to the pod itself leaves through lo.
func send(owner *packet.Owner, proto Protocol, to string, port uint16) Packet {
	p := Packet{Out: "eth0", Protocol: proto, Owner: owner, Source: at(podIP, 40000),
		Destination: at(to, port)}
	if to == podIP || p.Destination.Addr().IsLoopback() {
		p.Out = "lo"
	}
	if p.Destination.Addr().IsLoopback() {
		p.Source = at(itself, 40000)
	}
	return p
}

// enter is a packet that enters from an address for a port of the pod.
func enter(from string, proto Protocol, port uint16) Packet {
	return Packet{In: "eth0", Protocol: proto, Source: at(from, 40000),
		Destination: at(podIP, port)}
}

func at(addr string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
}

func (p Packet) in(s State) Packet    { p.State = s; return p }
func (p Packet) from(a string) Packet { p.Source = at(a, p.Source.Port()); return p }
func (p Packet) fromPort(n uint16) Packet {
	p.Source = netip.AddrPortFrom(p.Source.Addr(), n)
	return p
}
func (p Packet) to(a string) Packet {
	p.Destination = at(a,
		p.Destination.Port())
	return p
}
func (p Packet) entersBy(nic string) Packet { p.In = nic; return p }
func (p Packet) leavesBy(nic string) Packet { p.Out = nic; return p }
func (p Packet) marked(m uint32) Packet     { p.Mark = m; return p }
func (p Packet) ofMarked(m uint32) Packet   { p.ConnMark = m; return p }

// overIPv6 is the same packet in IPv6.
func (p Packet) overIPv6() Packet {
	six := func(a netip.AddrPort) netip.AddrPort { return at(inIPv6[a.Addr().String()], a.Port()) }
	p.Source, p.Destination = six(p.Source), six(p.Destination)
	return p
}

func redirected(port uint16) Fate { return Fate{Outcome: packet.Redirected, Port: port} }

var passes, dropped = Fate{Outcome: packet.Passes}, Fate{Outcome: packet.Dropped}

func (f Fate) by(nic string) Fate      { f.Local = nic == "lo"; return f }
func (f Fate) zone(zone uint16) Fate   { f.Zone = zone; return f }
func (f Fate) mark(mark uint32) Fate   { f.Mark.Value = mark; return f }
func (f Fate) onConn(mark uint32) Fate { f.ConnMark.Value = mark; return f }
func (f Fate) dropped() Fate           { f.Outcome = packet.Dropped; return f }
func (f Fate) withoutWhy() Fate        { f.Met = nil; return f }

var (
	home     = redirected(15001).by("lo") // to the outbound listener
	inside   = redirected(15006).by("lo") // to the inbound listener, from within the pod
	captured = redirected(15006)          // to the inbound listener, from outside
	resolved = redirected(15053).by("lo")
	out      = passes
	within   = passes.by("lo")
)

// fated is a packet and what becomes of it.
type fated struct {
	name   string
	packet Packet
	want   Fate
}

var fates = []struct {
	name string
	pod  Change
	rows []fated
}{
	{"default", Together(), []fated{
		{"app to the world", send(app, TCP, world, 80), home},
		{"app to the world's tunnel port", send(app, TCP, world, 15008), home},
		{"app to the world, UDP", send(app, UDP, world, 80), out},
		{"app to a nameserver", send(app, UDP, resolver, 53), out},
		{"app in a connection that began before", send(app, TCP, world, 80).in(Established), out},
		{"nobody to the world", send(nobody, TCP, world, 80), home},
		{"proxy to the world", send(envoy, TCP, world, 80), out},
		{"proxy by its uid alone", send(&packet.Owner{UID: 1337}, TCP, world, 80), out},
		{"proxy by its gid alone", send(&packet.Owner{GID: 1337}, TCP, world, 80), out},
		{"proxy to a nameserver", send(envoy, UDP, resolver, 53), out},

		{"world to the app", enter(world, TCP, 8080), captured},
		{"world to the inbound listener", enter(world, TCP, 15006), captured},
		{"world to the tunnel", enter(world, TCP, 15008), passes},
		{"world to the status port", enter(world, TCP, 15020), passes},
		{"world to health", enter(world, TCP, 15021), passes},
		{"world to telemetry", enter(world, TCP, 15090), passes},
		{"world to the app, UDP", enter(world, UDP, 8080), passes},
		{"world in a connection that began before", enter(world, TCP, 8080).in(Established),
			passes},
		{"world, in no connection", enter(world, TCP, 8080).in(Invalid), passes},

		{"app to itself by loopback", send(app, TCP, itself, 8080), within},
		{"app to itself by the pod's address", send(app, TCP, podIP, 8080), within},
		{"nobody to the pod's address", send(nobody, TCP, podIP, 8080), within},
		{"proxy to the app by loopback", send(envoy, TCP, itself, 8080), within},
		{"proxy to the pod's address: a self-call", send(envoy, TCP, podIP, 8080), inside},
		{"proxy to the pod's address, tunnelled", send(envoy, TCP, podIP, 15008), within},
		{"proxy to the pod's address, UDP", send(envoy, UDP, podIP, 8080), within},
		{"proxy by its gid alone to the pod's address", send(rootProxy, TCP, podIP, 8080), within},
		{"proxy's inbound side to the app", send(envoy, TCP, podIP, 8080).from(through), within},
		{"proxy's inbound side to the app by loopback",
			send(envoy, TCP, itself, 8080).from(through), within},
		{"app from the proxy's address", send(app, TCP, podIP, 8080).from(through), within},
		{"istio-validation", send(envoy, TCP, itself, 15002).to(through), inside},
	}},
	{"excluded outbound port", Annotation(TrafficKeys+"excludeOutboundPorts", "22"), []fated{
		{"to it", send(app, TCP, world, 22), out},
		{"to it, UDP", send(app, UDP, world, 22), out},
		{"to another", send(app, TCP, world, 23), home},
		{"to it, inbound", enter(world, TCP, 22), captured},
	}},
	{"included ranges", Annotation(OutboundRanges, "198.51.100.0/24,2001:db8:c::/48"), []fated{
		{"into one", send(app, TCP, network, 80), home},
		{"into one, UDP", send(app, UDP, network, 80), out},
		{"elsewhere", send(app, TCP, world, 80), out},
		{"proxy into one", send(envoy, TCP, network, 80), out},
		{"app to itself by the pod's address", send(app, TCP, podIP, 80), within},
		{"inbound", enter(network, TCP, 80), captured},
	}},
	{"no included range", Annotation(OutboundRanges, ""), []fated{
		{"anywhere", send(app, TCP, world, 80), out},
		{"proxy to the pod's address", send(envoy, TCP, podIP, 80), inside},
	}},
	{"included port", Together(Annotation(OutboundRanges, "198.51.100.0/24,2001:db8:c::/48"),
		Annotation(TrafficKeys+"includeOutboundPorts", "443")), []fated{
		{"to it, out of the ranges", send(app, TCP, world, 443), home},
		{"to another, out of the ranges", send(app, TCP, world, 444), out},
		{"to it, on loopback", send(app, TCP, itself, 443), within},
		{"to it, UDP", send(app, UDP, world, 443), out},
	}},
	{"excluded ranges", Together(Annotation(TrafficKeys+"excludeOutboundIPRanges",
		"203.0.113.0/24,2001:db8:d::/48"), Annotation(TrafficKeys+"includeOutboundPorts", "443")),
		[]fated{
			{"into one", send(app, TCP, world, 80), out},
			{"into one, to an included port", send(app, TCP, world, 443), out},
			{"elsewhere", send(app, TCP, network, 80), home},
		}},
	{"excluded port that is included too",
		PodAnnotations(map[string]string{TrafficKeys + "excludeOutboundPorts": "443",
			TrafficKeys + "includeOutboundPorts": "443"}), []fated{
			{"to it", send(app, TCP, world, 443), out},
		}},
	{"captured loopback", Annotation(OutboundRanges, "127.0.0.0/8,::/0"), []fated{
		{"app to the loopback address", send(app, TCP, itself, 80), within},
		{"app to another one", send(app, TCP, itself, 80).to(through), home},
		{"proxy to the pod's address", send(envoy, TCP, podIP, 80), inside},
		{"root proxy to the pod's address", send(rootProxy, TCP, podIP, 80), inside},
		{"proxy's inbound side to the app", send(envoy, TCP, podIP, 80).from(through), within},
	}},
	{"wide loopback", Variable("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8"), []fated{
		{"app to the loopback address", send(app, TCP, itself, 80), within},
		{"proxy to the loopback address", send(envoy, TCP, itself, 80), within},
		{"proxy to the pod's address", send(envoy, TCP, podIP, 80), inside},
	}},
	{"included inbound ports", Annotation(TrafficKeys+"includeInboundPorts", "80,15008,15020"), []fated{
		{"to one", enter(world, TCP, 80), captured},
		{"to one that is open otherwise", enter(world, TCP, 15020), captured},
		{"to the tunnel", enter(world, TCP, 15008), passes},
		{"to another", enter(world, TCP, 81), passes},
		{"outbound", send(app, TCP, world, 81), home},
	}},
	{"no included inbound port", Annotation(TrafficKeys+"includeInboundPorts", ""), []fated{
		{"to any", enter(world, TCP, 80), passes},
		{"proxy to the pod's address", send(envoy, TCP, podIP, 80), inside},
	}},
	{"excluded inbound port",
		PodAnnotations(map[string]string{TrafficKeys + "excludeInboundPorts": "22",
			"status.sidecar.istio.io/port": "15030"}), []fated{
			{"to it", enter(world, TCP, 22), passes},
			{"to the status port", enter(world, TCP, 15030), passes},
			{"to the usual status port", enter(world, TCP, 15020), passes},
			{"to another", enter(world, TCP, 23), captured},
		}},
	{"excluded interfaces", Annotation(TrafficKeys+"excludeInterfaces", "net1,tap+"), []fated{
		{"enters through one", enter(world, TCP, 80).entersBy("net1"), passes},
		{"enters through another", enter(world, TCP, 80).entersBy("net11"), captured},
		{"enters through one of many", enter(world, TCP, 80).entersBy("tap7"), passes},
		{"leaves through one", send(app, TCP, world, 80).leavesBy("net1"), passes.by("net1")},
		{"leaves through one of many", send(app, TCP, world, 80).leavesBy("tap"), passes.by("tap")},
		{"leaves through another", send(app, TCP, world, 80), home},
	}},
	{"virtual interface", Annotation("istio.io/reroute-virtual-interfaces", "k6t-eth0"), []fated{
		{"machine to the world", enter(podIP, TCP, 80).to(world).entersBy("k6t-eth0"),
			redirected(15001)},
		{"machine to the world, UDP", enter(podIP, UDP, 80).to(world).entersBy("k6t-eth0"), passes},
		{"machine to the pod's open port", enter(podIP, TCP, 15020).entersBy("k6t-eth0"),
			redirected(15001)},
		{"world to the pod", enter(world, TCP, 80), captured},
	}},
	{"virtual interface and ranges",
		Together(Annotation("istio.io/reroute-virtual-interfaces", "k6t-eth0"),
			Annotation(OutboundRanges, "198.51.100.0/24,2001:db8:c::/48")), []fated{
			{"machine into one", enter(podIP, TCP, 80).to(network).entersBy("k6t-eth0"),
				redirected(15001)},
			{"machine elsewhere", enter(podIP, TCP, 80).to(world).entersBy("k6t-eth0"), passes},
			{"machine to the pod", enter(podIP, TCP, 80).entersBy("k6t-eth0"), passes},
		}},
	{"drop invalid", Variable("INVALID_DROP", "true"), []fated{
		{"in no connection", enter(world, TCP, 80).in(Invalid), dropped},
		{"in no connection, UDP", enter(world, UDP, 80).in(Invalid), dropped},
		{"app sends in no connection", send(app, TCP, world, 80).in(Invalid), out},
		{"app sends to itself in no connection", send(app, TCP, itself, 80).in(Invalid),
			dropped.by("lo")},
		{"new", enter(world, TCP, 80), captured},
		{"established", enter(world, TCP, 80).in(Established), passes},
	}},
	{"included groups", Variable("ISTIO_OUTBOUND_OWNER_GROUPS", "4000,4001"), []fated{
		{"of one", send(someone, TCP, world, 80), home},
		{"of one, within the pod", send(someone, TCP, podIP, 80), within},
		{"of another", send(app, TCP, world, 80), out},
		{"of none", send(nobody, TCP, world, 80), out},
	}},
	{"no included group", Variable("ISTIO_OUTBOUND_OWNER_GROUPS", ""), []fated{
		{"of any", send(someone, TCP, world, 80), out},
		{"inbound", enter(world, TCP, 80), captured},
	}},
	{"excluded group", Variable("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000"), []fated{
		{"of it", send(someone, TCP, world, 80), out},
		{"of another", send(app, TCP, world, 80), home},
		{"of none", send(nobody, TCP, world, 80), home},
	}},
	{"excluded uids", Together(Annotation("sidecar-cni.io/excludeOutboundUIDs", "3000-3999"),
		Variable(CaptureDNS, "true")), []fated{
		{"one", send(someone, TCP, world, 80), out},
		{"one asks a nameserver", send(someone, UDP, resolver, 53), out.zone(1)},
		{"another", send(app, TCP, world, 80), home},
		{"nobody", send(nobody, TCP, world, 80), home},
	}},
	{"DNS of the nameservers",
		Together(Variable(CaptureDNS, "true"), Nameservers(resolver, "2001:db8::53")), []fated{
			{"app asks", send(app, UDP, resolver, 53), resolved.zone(2)},
			{"app asks, TCP", send(app, TCP, resolver, 53), resolved},
			{"app asks another", send(app, UDP, world, 53), out},
			{"app asks another, TCP", send(app, TCP, world, 53), home},
			{"app asks something else", send(app, UDP, resolver, 54), out},
			{"app asks itself", send(app, UDP, itself, 53), within},
			{"proxy asks", send(envoy, UDP, resolver, 53), out.zone(1)},
			{"proxy asks another", send(envoy, UDP, world, 53), out.zone(1)},
			{"root proxy asks", send(rootProxy, UDP, resolver, 53), out.zone(1)},
			{"nameserver answers", enter(resolver, UDP, 40000).fromPort(53).in(Established),
				passes.zone(1)},
			{"another answers", enter(world, UDP, 40000).fromPort(53).in(Established), passes},
			{"proxy answers", send(envoy, UDP, podIP, 40000).fromPort(15053).in(Established),
				within.zone(2)},
		}},
	{"all DNS", Together(Variable(CaptureDNS, "true"), Variable("CAPTURE_ALL_DNS", "true")),
		[]fated{
			{"app asks anybody", send(app, UDP, world, 53), resolved.zone(2)},
			{"app asks anybody, TCP", send(app, TCP, world, 53), resolved},
			{"app asks itself", send(app, UDP, itself, 53), resolved.zone(2)},
			{"app asks itself, TCP", send(app, TCP, itself, 53), resolved},
			{"app asks the pod's address, TCP", send(app, TCP, podIP, 53), resolved},
			{"app calls itself by loopback", send(app, TCP, itself, 80), within},
			{"app calls the pod's address", send(app, TCP, podIP, 80), within},
			{"app calls the pod's address, UDP", send(app, UDP, podIP, 80), within},
			{"proxy asks", send(envoy, UDP, world, 53), out.zone(1)},
			{"proxy asks the pod's address, TCP", send(envoy, TCP, podIP, 53), within},
			{"proxy by its gid alone asks the pod's address, TCP", send(rootProxy, TCP, podIP, 53),
				inside},
			{"anybody answers", enter(world, UDP, 40000).fromPort(53).in(Established),
				passes.zone(1)},
		}},
	{"all DNS but of a group",
		Together(Variable(CaptureDNS, "true"), Variable("CAPTURE_ALL_DNS", "true"),
			Variable("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4000")), []fated{
			{"of it", send(someone, TCP, world, 53), out},
			{"of another", send(app, TCP, world, 53), resolved},
		}},
	{"TPROXY", TProxyPod, []fated{
		{"world to the app", enter(world, TCP, 80), Fate{Outcome: packet.Handed, Port: 15006}.mark(1337)},
		{"world in the proxy's connection", enter(world, TCP, 80).in(Established),
			passes.mark(1337)},
		{"related to the proxy's connection", enter(world, TCP, 80).in(Related), passes.mark(1337)},
		{"world to the tunnel", enter(world, TCP, 15008), passes},
		{"world to health", enter(world, TCP, 15021), passes},
		{"world to the app, UDP", enter(world, UDP, 80), passes},
		{"proxy as the client calls the app",
			send(rootProxy, TCP, podIP, 80).from(world).marked(1337),
			within.mark(1337).onConn(1337)},
		{"app answers the client",
			send(app, TCP, world, 40000).fromPort(80).ofMarked(1337).in(Established),
			within.mark(1337).onConn(1337)},
		{"app answers somebody else", send(app, TCP, world, 40000).fromPort(80).in(Established),
			out},
		{"proxy calls the app", send(envoy, TCP, podIP, 80).from(through), within.mark(1338)},
		{"proxy calls the app by loopback", send(envoy, TCP, itself, 80).from(through), within},
		{"proxy to the pod's address: a self-call", send(envoy, TCP, podIP, 80), inside.mark(1338)},
		{"the same later", send(envoy, TCP, podIP, 80).in(Established), within.mark(1337)},
		{"app to the pod's address", send(app, TCP, podIP, 80), within},
		{"app to itself by loopback", send(app, TCP, itself, 80), within},
		{"app to the world", send(app, TCP, world, 80), home},
		{"proxy to the world", send(envoy, TCP, world, 80), out},
		{"istio-validation", send(envoy, TCP, itself, 15002).to(through), inside.mark(1338)},
	}},
	{"TPROXY of some ports",
		Together(TProxyPod, Annotation(TrafficKeys+"includeInboundPorts", "80,15020")), []fated{
			{"to one", enter(world, TCP, 80), Fate{Outcome: packet.Handed, Port: 15006}.mark(1337)},
			{"to one, later", enter(world, TCP, 80).in(Established), passes.mark(1337)},
			{"to one that is open otherwise", enter(world, TCP, 15020),
				Fate{Outcome: packet.Handed, Port: 15006}.mark(1337)},
			{"to another", enter(world, TCP, 81), passes},
			{"to another, later", enter(world, TCP, 81).in(Established), passes},
		}},
	{"TPROXY of no port", Together(TProxyPod, Annotation(TrafficKeys+"includeInboundPorts", "")), []fated{
		{"to any", enter(world, TCP, 80), passes},
		{"proxy to the pod's address", send(envoy, TCP, podIP, 80), inside},
	}},
	{"TPROXY with other interfaces",
		Together(TProxyPod, Variable("INVALID_DROP", "true"), PodAnnotations(map[string]string{
			TrafficKeys + "excludeInterfaces":     "net1",
			"istio.io/reroute-virtual-interfaces": "k6t-eth0",
		})), []fated{
			{"enters through an excluded one", enter(world, TCP, 80).entersBy("net1"), passes},
			{"enters through an excluded one, in no connection",
				enter(world, TCP, 80).entersBy("net1").in(Invalid), passes},
			{"leaves through an excluded one",
				send(app, TCP, world, 80).leavesBy("net1").ofMarked(1337),
				passes.by("net1").onConn(1337)},
			{"enters through a virtual one", enter(podIP, TCP, 80).to(world).entersBy("k6t-eth0"),
				redirected(15001)},
			{"in no connection", enter(world, TCP, 80).in(Invalid), dropped},
			{"world to the app", enter(world, TCP, 80),
				Fate{Outcome: packet.Handed, Port: 15006}.mark(1337)},
		}},
}

func TestFates(t *testing.T) {
	t.Parallel()
	for _, table := range fates {
		rs := Compiled(t, table.pod)
		for _, row := range table.rows {
			t.Run(table.name+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				for _, packet := range []Packet{row.packet, row.packet.overIPv6()} {
					got := played(rs, packet)
					if diff := cmp.Diff(row.want, got.withoutWhy()); diff != "" {
						t.Errorf("to %s: fate (-want +got):\n%s%s", packet.Destination, diff, got)
					}
				}
			})
		}
	}
}

// A family of which no address is known is not captured: the other's rules do not reach it.
func TestFatesOfOneFamily(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name      string
		pod       Change
		packet    Packet
		four, six Fate
	}{
		{"nameserver of IPv4", Together(Variable(CaptureDNS, "true"), Nameservers(resolver)),
			send(app, UDP, resolver, 53), resolved.zone(2), out},
		{"nameserver of IPv6", Together(Variable(CaptureDNS, "true"), Nameservers("2001:db8::53")),
			send(app, UDP, resolver, 53), out, resolved.zone(2)},
		{"all of IPv4", Annotation(OutboundRanges, "0.0.0.0/0"), send(app, TCP, world, 80), home,
			out},
		{"all of IPv6", Annotation(OutboundRanges, "::/0"), send(app, TCP, world, 80), out, home},
		{"mapped IPv4", Annotation(OutboundRanges, "::ffff:203.0.113.0/120"),
			send(app, TCP, world, 80), home, out},
		{"excluded in IPv4", Annotation(TrafficKeys+"excludeOutboundIPRanges", "203.0.113.0/24"),
			send(app, TCP, world, 80), out, home},
		{"machine into IPv6", Together(Annotation("istio.io/reroute-virtual-interfaces", "vm"),
			Annotation(OutboundRanges, "::/0")),
			enter(podIP, TCP, 80).to(world).entersBy("vm"), passes, redirected(15001)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			rs := Compiled(t, row.pod)
			for want, packet := range map[*Fate]Packet{&row.four: row.packet,
				&row.six: row.packet.overIPv6()} {
				got := played(rs, packet)
				if diff := cmp.Diff(*want, got.withoutWhy()); diff != "" {
					t.Errorf("to %s: fate (-want +got):\n%s%s", packet.Destination, diff, got)
				}
			}
		})
	}
}

func TestSeveralProxies(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Proxy = Identity{UIDs: []uint32{1337, 1340}, GIDs: []uint32{1337, 1341}}
	for _, row := range []struct {
		name   string
		pod    Change
		packet Packet
		want   Fate
	}{
		{"second uid", Together(), send(&packet.Owner{UID: 1340}, TCP, world, 80), out},
		{"second gid", Together(), send(&packet.Owner{GID: 1341}, TCP, world, 80), out},
		{"neither", Together(), send(&packet.Owner{UID: 1341, GID: 1340}, TCP, world, 80), home},
		// istio-init ends all calls within the pod at the first uid
		{"self-call of the first uid", Together(), send(&packet.Owner{UID: 1337}, TCP, podIP, 80), inside},
		{"self-call of the second uid", Together(), send(&packet.Owner{UID: 1340}, TCP, podIP, 80),
			within},
		{"self-call of the second uid, loopback being captured",
			Annotation(OutboundRanges, "127.0.0.0/8"), send(&packet.Owner{UID: 1340}, TCP, podIP, 80),
			inside},
		{"self-call of the second gid, loopback being captured",
			Annotation(OutboundRanges, "127.0.0.0/8"), send(&packet.Owner{GID: 1341}, TCP, podIP, 80),
			inside},
		{"answer of the second uid", Variable(CaptureDNS, "true"),
			send(&packet.Owner{UID: 1340}, UDP, podIP, 40000).fromPort(15053).in(Established),
			within.zone(2)},
		{"question of the second gid", Variable(CaptureDNS, "true"),
			send(&packet.Owner{GID: 1341}, UDP, resolver, 53), out.zone(1)},
		{"marks of the second gid", TProxyPod, send(&packet.Owner{GID: 1341}, TCP, podIP, 80).in(Established),
			within.mark(1337)},
	} {
		got := played(Compile(Ours(t, Meshed(row.pod), cfg).Policy), row.packet)
		if diff := cmp.Diff(row.want, got.withoutWhy()); diff != "" {
			t.Errorf("%s: fate (-want +got):\n%s%s", row.name, diff, got)
		}
	}
}

// A list of one, and an empty one, are rules that other pods do not have.
func TestClusterWithoutOpenPorts(t *testing.T) {
	t.Parallel()
	cfg := Defaults()
	cfg.Open, cfg.Status = nil, 0
	one := Annotation(TrafficKeys+"excludeInboundPorts", "80")
	for _, row := range []struct {
		name   string
		pod    Change
		packet Packet
		want   Fate
	}{
		{"none is open", Together(), enter(world, TCP, 15021), captured},
		{"none is open, TPROXY", TProxyPod, enter(world, TCP, 15021),
			Fate{Outcome: packet.Handed, Port: 15006}.mark(1337)},
		{"the tunnel is", Together(), enter(world, TCP, 15008), passes},
		{"one is open", one, enter(world, TCP, 80), passes},
		{"one is open, another is not", one, enter(world, TCP, 15021), captured},
		{"one is open, TPROXY", Together(one, TProxyPod), enter(world, TCP, 80), passes},
	} {
		got := played(Compile(Ours(t, Meshed(row.pod), cfg).Policy), row.packet)
		if diff := cmp.Diff(row.want, got.withoutWhy()); diff != "" {
			t.Errorf("%s: fate (-want +got):\n%s%s", row.name, diff, got)
		}
	}
}

// How the kernel treats rules that Compile does not write, or not yet.
func TestRulesOfAnyKind(t *testing.T) {
	t.Parallel()
	chain := func(table Table, name string, rules ...Rule) Chain {
		return Chain{Table: table, Name: name, Hook: HookOf(name), Rules: rules}
	}
	rule := func(m Match, a Action) Rule { return Rule{If: m, Then: a} }
	always := func(a Action) Rule { return rule(Match{}, a) }
	redirect := func(port uint16) Action { return Action{Verb: Redirect, Port: port} }
	mark := func(m uint32) Action { return Action{Verb: SetMark, Mark: m} }
	zone := func(z uint16) Action { return Action{Verb: SetZone, Zone: z} }
	drop, accept := Action{Verb: Drop}, Action{Verb: Accept}
	route := []PolicyRoute{{Mark: 7, Table: 100}}
	local := Match{In: "lo", Destination: Addresses{Prefixes: Prefixes("127.0.0.1/32", "::1/128")},
		Protocol: TCP, DestinationPort: Ports{List: []uint16{9}}}
	packet := send(app, TCP, world, 80)
	rows := []struct {
		name   string
		chains []Chain
		routes []PolicyRoute
		want   Fate
	}{
		{"none", nil, nil, out},
		{"what is dropped meets nothing more",
			[]Chain{chain(Mangle, "OUTPUT", always(drop)),
				chain(NAT, "OUTPUT", always(redirect(9)))}, nil, dropped.by("eth0")},
		{"accept ends a table", []Chain{chain(Mangle, "OUTPUT", always(accept), always(drop)),
			chain(NAT, "OUTPUT", always(redirect(9)))}, nil, redirected(9).by("lo")},
		{"accept ends a table from within a jump",
			[]Chain{chain(NAT, "OUTPUT", always(JumpTo("A")), always(redirect(9))),
				chain(NAT, "A", always(accept))}, nil, out},
		{"return ends the chain of a hook",
			[]Chain{chain(NAT, "OUTPUT", always(Returns), always(redirect(9)))}, nil, out},
		{"return comes back behind the jump", []Chain{
			chain(NAT, "OUTPUT", always(JumpTo("A")), always(redirect(9))),
			chain(NAT, "A", always(Returns), always(drop)),
		}, nil, redirected(9).by("lo")},
		{"the end of a chain comes back too", []Chain{
			chain(NAT, "OUTPUT", always(JumpTo("A")), always(redirect(9))),
			chain(NAT, "A", rule(Match{Protocol: UDP}, drop)),
		}, nil, redirected(9).by("lo")},
		{"a mark lets the packet go on",
			[]Chain{chain(Mangle, "OUTPUT", always(mark(6)),
				rule(Match{Mark: Mark{Value: 6}}, mark(8)))}, route, out.mark(8)},
		{"a mark with a route leads home", []Chain{chain(Mangle, "OUTPUT", always(mark(7)))}, route,
			within.mark(7)},
		{"nat sees the interface of the first routing", []Chain{
			chain(Mangle, "OUTPUT", always(mark(7))),
			chain(NAT, "OUTPUT", rule(Match{Out: "eth0"}, redirect(9))),
		}, route, redirected(9).by("lo").mark(7)},
		{"marks are saved and restored", []Chain{
			chain(Mangle, "OUTPUT", always(mark(6)), always(Action{Verb: SaveMark}),
				always(mark(8)), always(Action{Verb: RestoreMark})),
		}, nil, out.mark(6).onConn(6)},
		{"the first zone counts", []Chain{chain(Raw, "OUTPUT", always(zone(2)), always(zone(1)))},
			nil, out.zone(2)},
		{"what is redirected comes in by lo, to the loopback address", []Chain{
			chain(NAT, "OUTPUT", always(redirect(9))),
			chain(Mangle, "PREROUTING", rule(local, drop)),
		}, nil, redirected(9).by("lo").dropped()},
		{"what comes in by lo has no owner", []Chain{
			chain(NAT, "OUTPUT", always(redirect(9))),
			chain(Mangle, "PREROUTING", rule(Match{UID: IDs{{0, 9999}}}, drop)),
		}, nil, redirected(9).by("lo")},
		{"nat is not asked a second time", []Chain{
			chain(NAT, "OUTPUT", always(redirect(9))),
			chain(NAT, "PREROUTING", always(redirect(10))),
		}, nil, redirected(9).by("lo")},
	}
	for _, row := range rows {
		for _, p := range []Packet{packet, packet.overIPv6()} {
			got := played(Ruleset{Chains: row.chains, Routes: row.routes}, p)
			if diff := cmp.Diff(row.want, got.withoutWhy()); diff != "" {
				t.Errorf("%s: to %s: fate (-want +got):\n%s%s", row.name, p.Destination, diff, got)
			}
		}
	}
}

func TestMatchOfOneFamily(t *testing.T) {
	t.Parallel()
	four, six := Prefixes("10.0.0.0/8"), Prefixes("2001:db8::/32")
	rows := []struct {
		name     string
		match    Match
		family   Family
		want     Match
		possible bool
	}{
		{"no address", Match{In: "lo"}, IPv4, Match{In: "lo"}, true},
		{"of both", Match{Source: Addresses{Prefixes: slices.Concat(four, six)}}, IPv6,
			Match{Source: Addresses{Prefixes: six}}, true},
		{"of the other", Match{Destination: Addresses{Prefixes: six}}, IPv4, Match{}, false},
		{"source of one, destination of the other",
			Match{Source: Addresses{Prefixes: four}, Destination: Addresses{Prefixes: six}}, IPv4,
			Match{Source: Addresses{Prefixes: four}}, false},
		{"anywhere but one of the other", Match{Destination: Addresses{Not: true, Prefixes: six}},
			IPv4, Match{Destination: Addresses{Not: true}}, true},
		{"anywhere but one of both",
			Match{Destination: Addresses{Not: true, Prefixes: slices.Concat(four, six)}}, IPv4,
			Match{Destination: Addresses{Not: true, Prefixes: four}}, true},
	}
	for _, row := range rows {
		got, possible := row.match.For(row.family)
		if diff := cmp.Diff(row.want, got, ByValue); diff != "" || possible != row.possible {
			t.Errorf("%s: possible %t, match (-want +got):\n%s", row.name, possible, diff)
		}
	}
}

// What the reference page says of its examples holds.
func TestExamplesOfThePageHold(t *testing.T) {
	t.Parallel()
	fates := map[string]fated{
		"A database beside the mesh":      {packet: send(app, TCP, world, 3306), want: out},
		"Only the cluster's own networks": {packet: send(app, TCP, world, 80), want: out},
		"The client's address": {
			packet: enter(world, TCP, 80),
			want:   Fate{Outcome: packet.Handed, Port: 15006}.mark(1337),
		},
		"Another network": {packet: send(app, TCP, world, 80).leavesBy("net1"), want: out},
		"An init container that needs the network": {
			packet: send(&packet.Owner{UID: 2000, GID: 2000}, TCP, world, 80), want: out,
		},
		"Names resolved by the proxy": {packet: send(app, UDP, resolver, 53), want: resolved.zone(2)},
	}
	for _, e := range PageExamples() {
		row, ok := fates[e.Title]
		if !ok {
			t.Errorf("%s: no fate is known of it", e.Title)
			continue
		}
		got := played(Compile(Ours(t, e.Pod, Defaults()).Policy), row.packet)
		if diff := cmp.Diff(row.want, got.withoutWhy()); diff != "" {
			t.Errorf("%s: fate (-want +got):\n%s%s", e.Title, diff, got)
		}
		if usual := played(Compiled(t), row.packet); cmp.Equal(usual.withoutWhy(),
			got.withoutWhy()) {
			t.Errorf("%s: changes nothing: %s", e.Title, got)
		}
	}
}

func TestFateSaysWhy(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		packet Packet
		want   []string
	}{
		"redirected": {send(app, TCP, world, 80), []string{
			"redirected to port 15001",
			"  nat OUTPUT 1: Every packet goes through ISTIO_OUTPUT: all that the pod sends.",
			"  nat ISTIO_OUTPUT 7: Every packet goes through ISTIO_REDIRECT: everything else.",
			"  nat ISTIO_REDIRECT 1: TCP is redirected to port 15001: to the outbound listener " +
				"of the proxy.",
			"  mangle PREROUTING 1: TCP goes through ISTIO_INBOUND: all that enters.",
			"  mangle ISTIO_INBOUND 3: TCP with any mark but 1338 that enters through lo is left " +
				"alone: within the pod.",
		}},
		"handed": {enter(world, TCP, 80), []string{
			"handed to the transparent listener on port 15006",
			"  mangle PREROUTING 1: TCP goes through ISTIO_INBOUND: all that enters.",
			"  mangle ISTIO_INBOUND 7: TCP goes through ISTIO_TPROXY: a new connection.",
			"  mangle ISTIO_TPROXY 1: TCP to anywhere but 127.0.0.1 or ::1 is handed to the " +
				"transparent listener on port 15006 with mark 1337, " +
				"or dropped if nobody listens: to the inbound listener of the proxy.",
		}},
		"passes": {enter(world, UDP, 80), []string{"passes"}},
	}
	rs := Compiled(t, TProxyPod)
	for name, row := range rows {
		if diff := cmp.Diff(row.want,
			strings.Split(played(rs, row.packet).String(), "\n")); diff != "" {
			t.Errorf("%s: said (-want +got):\n%s", name, diff)
		}
	}
	rs = Compiled(t, Variable("INVALID_DROP", "true"))
	if got := played(rs, enter(world, TCP, 80).in(Invalid)).String(); !strings.HasPrefix(got,
		"dropped\n") {
		t.Errorf("said %q", got)
	}
}
