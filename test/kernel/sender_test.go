package kernel

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// firstPort begins the source ports of calls. Nobody listens there.
const firstPort = 30000

// sender finds calls whose first packet is in a class. It knows what the namespaces of a pod can
// send.
type sender struct {
	random *rand.Rand
	routed packet.Set // marks whose packets the routing policy has delivered within the pod
}

// way is where a call comes from and where it goes.
type way struct {
	from, through string // as in a call
	to, source    netip.Addr
}

// find returns a call, or the field that has no value in the class that could be sent. Without
// forwards nothing goes through the pod.
func (s sender) find(c packet.Class, forwards bool) (call, packet.Field) {
	if f := unsendable(c); f != packet.NoField {
		return call{}, f
	}
	ports := s.ports(c)
	if len(ports) == 0 {
		return call{}, packet.DestinationPort
	}
	marks := []uint32{0}
	if c.Leaves {
		marks = numbersOf(c.Of(packet.PacketMark), 0)
	}
	s.random.Shuffle(len(marks), func(i, j int) { marks[i], marks[j] = marks[j], marks[i] })
	missing := packet.NoField
	for _, mark := range marks {
		possible, f := s.possible(c, mark, forwards)
		if missing = max(missing, f); f != packet.NoField {
			continue
		}
		w := among(s, possible)
		found := call{from: w.from, through: w.through, source: w.source, mark: mark,
			proto: among(s, protocols(c)), to: netip.AddrPortFrom(w.to, among(s, ports))}
		if c.Leaves {
			found.as = netns.Identity{UID: among(s, numbersOf(c.Of(packet.UID), usualIDs...)),
				GID: among(s, numbersOf(c.Of(packet.GID), usualIDs...))}
		}
		return found, packet.NoField
	}
	return call{}, missing
}

func among[T any](s sender, list []T) T { return list[s.random.IntN(len(list))] }

// unsendable is the first field of which no class that can be sent has such values. What a socket
// sends is the first packet of a connection, from one of our ports; what enters has no mark.
func unsendable(c packet.Class) packet.Field {
	unmarked, mark := packet.Range(0, 0), packet.PacketMark
	if c.Leaves {
		mark = packet.NoField
	}
	for _, must := range []struct {
		field packet.Field
		set   packet.Set
	}{
		{packet.State, packet.Numbers(redirect.New)}, {packet.ConnMark, unmarked}, {mark, unmarked},
		{packet.Socket, packet.Numbers(map[bool]uint8{true: 1}[c.Leaves])},
		{packet.Protocol, packet.Numbers(redirect.TCP, redirect.UDP)},
	} {
		if can, _ := must.set.Meets(c.Of(must.field)); !can && must.field != packet.NoField {
			return must.field
		}
	}
	ours := packet.Range(firstPort, firstPort+9999)
	if _, others := ours.Meets(c.Of(packet.SourcePort)); others {
		return packet.SourcePort
	}
	return packet.NoField
}

func protocols(c packet.Class) []redirect.Protocol {
	return slices.DeleteFunc([]redirect.Protocol{redirect.TCP, redirect.TCP, redirect.UDP},
		func(p redirect.Protocol) bool { return !has(c.Of(packet.Protocol), packet.Numbers(p)) })
}

func has(s, single packet.Set) bool { return s.Has(single.Spans()[0].First) }

// usualPorts are those of the app, and one on which nobody listens.
var usualPorts = []uint32{53, 80, 8080, 9090, 15008, 15020, 15021, 15030, 15090, 25008, 12345}

// ports are those that somebody listens on, and some others.
func (s sender) ports(c packet.Class) []uint16 {
	var list []uint16
	for _, n := range numbersOf(c.Of(packet.DestinationPort), usualPorts...) {
		if n != 0 {
			list = append(list, uint16(n))
		}
	}
	return list
}

var usualIDs = []uint32{0, 1000, 1337, 1338, 1340, 2000, 2500, 3500, 4000, 4002}

// numbersOf returns those of the usual numbers that are in the set, and where its spans begin.
func numbersOf(s packet.Set, usual ...uint32) []uint32 {
	list := slices.DeleteFunc(slices.Clone(usual),
		func(n uint32) bool { return !has(s, packet.Numbers(n)) })
	for _, span := range s.Spans() {
		if n := span.First.Number(); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// possible returns the ways that packets of the class can go, or the field that leaves none.
func (s sender) possible(c packet.Class, mark uint32, forwards bool) ([]way, packet.Field) {
	ways := s.entering(c, forwards)
	if c.Leaves {
		ways = s.leaving(c, mark)
	}
	for _, f := range []packet.Field{packet.Interface, packet.Source, packet.Destination} {
		ways = slices.DeleteFunc(ways, func(w way) bool {
			p := call{from: w.from, through: w.through, source: w.source,
				to: netip.AddrPortFrom(w.to, 1)}.packet()
			return !has(c.Of(f), p.Class().Of(f))
		})
		if len(ways) == 0 {
			return nil, f
		}
	}
	return ways, packet.NoField
}

// leaving lists the ways on which the pod sends. What bears a routed mark leaves through lo, to
// whatever address.
func (s sender) leaving(c packet.Class, mark uint32) []way {
	var ways []way
	for _, to := range outside(c, packet.Destination) {
		ways = append(ways, way{"pod", route(to), to, netip.Addr{}})
	}
	for _, to := range own[c.Family] {
		for _, source := range own[c.Family] {
			// The kernel does not refuse a connection from ::1 to an address of another interface
			// than lo: its reset finds no way back.
			if source != netip.IPv6Loopback() || !slices.Contains(own[c.Family][:2], to) {
				ways = append(ways, way{"pod", "lo", to, source})
			}
		}
	}
	for i := range ways {
		if has(s.routed, packet.Numbers(mark)) {
			ways[i].through = "lo"
			ways[i].source = call{to: netip.AddrPortFrom(ways[i].to, 1)}.usualSource("eth0")
		}
	}
	return ways
}

// entering lists the ways on which the peer and the virtual machine call the pod or, with forwards,
// each other. The peer may do so as anybody.
func (s sender) entering(c packet.Class, forwards bool) []way {
	var ways []way
	vm := map[redirect.Family]netip.Addr{redirect.IPv4: netns.VMIPv4,
		redirect.IPv6: netns.VMIPv6}[c.Family]
	for _, to := range own[c.Family][:2] {
		ways = append(ways, way{"vm", "", to, netip.Addr{}}, way{"peer", "", to, netip.Addr{}})
		for _, source := range outside(c, packet.Source) {
			if source != vm {
				ways = append(ways, way{"peer", "", to, source})
			}
		}
	}
	if forwards {
		ways = append(ways, way{"peer", "", vm, netip.Addr{}})
		for _, to := range outside(c, packet.Destination) {
			if to != vm {
				ways = append(ways, way{"vm", "", to, netip.Addr{}})
			}
		}
	}
	return ways
}

// outside lists addresses beyond the pod: known ones, and where the spans of the class begin and
// end.
func outside(c packet.Class, f packet.Field) []netip.Addr {
	var list []netip.Addr
	for _, text := range destinations[c.Family] {
		list = append(list, netip.MustParseAddr(text))
	}
	for _, span := range c.Of(f).Spans() {
		list = append(list, span.First.Addr(c.Family), span.Last.Addr(c.Family))
	}
	return slices.DeleteFunc(list, func(a netip.Addr) bool { return isLocal(a) || !everyday(a) })
}

// everyday addresses are routed to the peer or the virtual machine, and the kernel has no special
// use for them.
func everyday(a netip.Addr) bool {
	if a == netns.VMIPv4 || a == netns.VMIPv6 {
		return true
	}
	for _, special := range []string{"10.244.0.0/24", "10.245.0.0/24", "0.0.0.0/8", "127.0.0.0/8",
		"169.254.0.0/16", "224.0.0.0/3", "fd00:244::/64", "fd00:245::/64"} {
		if netip.MustParsePrefix(special).Contains(a) {
			return false
		}
	}
	return a.Is4() || netip.MustParsePrefix("2000::/3").Contains(a) ||
		netip.MustParsePrefix("fc00::/7").Contains(a)
}
