package packet

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Field is something about a packet that a rule may ask.
type Field uint8

// The fields.
const (
	NoField         Field = iota
	Interface             // through which it comes, or would leave
	Protocol              // by its number
	Source                // address
	Destination           // address
	SourcePort            // of protocols with ports
	DestinationPort       // of protocols with ports
	Socket                // 1 if a socket sent it, else 0, and then nobody asks for UID and GID
	UID                   // of the socket
	GID                   // of the socket
	PacketMark            // of the packet
	ConnMark              // of its connection
	State                 // of connection tracking, one of redirect.States
	fields
)

// Fields lists the fields.
var Fields = []Field{Interface, Protocol, Source, Destination, SourcePort, DestinationPort, Socket,
	UID, GID, PacketMark, ConnMark, State}

// Class is a set of packets: those whose fields each hold one of the values of a set. The sets are
// independent of one another.
type Class struct {
	Leaves bool            // sent by the pod; else they enter it, from elsewhere than lo
	Family redirect.Family // of both addresses
	sets   [fields]Set
}

// Question asks on which side of a set the packets of a class are.
type Question struct {
	Field Field // of the packet at the start of its way
	Set   Set   // some of the class's values are in it and some are not
}

const maxID = math.MaxUint32 - 1

// Everything returns all packets, as one class for each direction and family.
func Everything() []Class {
	var classes []Class
	for _, f := range redirect.Families {
		anywhere := Networks(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
		if f == redirect.IPv6 {
			anywhere = Networks(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		}
		for _, leaves := range []bool{true, false} {
			c := Class{Leaves: leaves, Family: f}
			c.sets[Interface] = Names("+").Without(Names(""))
			c.sets[Protocol] = Range(0, math.MaxUint8)
			c.sets[Source], c.sets[Destination] = anywhere, anywhere
			c.sets[SourcePort] = Range(0, math.MaxUint16)
			c.sets[DestinationPort] = c.sets[SourcePort]
			c.sets[Socket] = Range(0, 1)
			c.sets[UID], c.sets[GID] = Range(0, maxID), Range(0, maxID)
			c.sets[PacketMark] = Range(0, math.MaxUint32)
			c.sets[ConnMark] = c.sets[PacketMark]
			c.sets[State] = Numbers(redirect.States...)
			if !leaves {
				c.sets[Interface] = c.sets[Interface].Without(Names("lo"))
				c.sets[Socket] = Range(0, 0)
			}
			classes = append(classes, c)
		}
	}
	return classes
}

// Whole returns all packets of the direction and family of the class.
func (c Class) Whole() Class {
	all := Everything()
	return all[slices.IndexFunc(all,
		func(o Class) bool { return o.Leaves == c.Leaves && o.Family == c.Family })]
}

// Of returns the values that a field has among the packets.
func (c Class) Of(f Field) Set { return c.sets[f] }

// With returns the class with other values of a field.
func (c Class) With(f Field, s Set) Class {
	c.sets[f] = s
	return c
}

// Split returns the packets for which the answer to q is yes, and the others.
func (c Class) Split(q Question) (in, out Class) {
	have := c.sets[q.Field]
	return c.With(q.Field, have.And(q.Set)), c.With(q.Field, have.Without(q.Set))
}

// Empty reports whether no packet is in the class.
func (c Class) Empty() bool {
	for _, f := range Fields {
		if c.sets[f].Empty() {
			return true
		}
	}
	return false
}

// Class returns the class that has no packet but p.
func (p Packet) Class() Class {
	c := Class{Leaves: p.Out != "", Family: redirect.FamilyOf(p.Destination.Addr())}
	single := func(a netip.Addr) Set { return Networks(netip.PrefixFrom(a, a.BitLen())) }
	c.sets[Interface] = Names(redirect.Interface(p.In + p.Out))
	c.sets[Protocol] = Numbers(p.Protocol)
	c.sets[Source], c.sets[SourcePort] = single(p.Source.Addr()), Numbers(p.Source.Port())
	c.sets[Destination] = single(p.Destination.Addr())
	c.sets[DestinationPort] = Numbers(p.Destination.Port())
	var owner Owner
	if c.sets[Socket] = Range(0, 0); p.Owner != nil {
		owner, c.sets[Socket] = *p.Owner, Range(1, 1)
	}
	c.sets[UID], c.sets[GID] = Numbers(owner.UID), Numbers(owner.GID)
	c.sets[PacketMark], c.sets[ConnMark] = Numbers(p.Mark), Numbers(p.ConnMark)
	c.sets[State] = Numbers(cmp.Or(p.State, redirect.New))
	return c
}

// Has reports whether a packet is in the class.
func (c Class) Has(p Packet) bool { return c.Meets(p.Class()) }

// Meets reports whether a packet is in both classes.
func (c Class) Meets(o Class) bool {
	if c.Leaves != o.Leaves || c.Family != o.Family {
		return false
	}
	for _, f := range Fields {
		if in, _ := o.sets[f].Meets(c.sets[f]); !in {
			return false
		}
	}
	return true
}

// usual is what an example has, if it may: the first of these, by field.
var usual = [fields][]Set{
	Interface:       {Names("eth0"), Names("lo"), Names("net1"), Names("eth+"), Names("net+")},
	Protocol:        {Numbers(redirect.TCP), Numbers(redirect.UDP)},
	SourcePort:      {Range(40000, 40000), Range(1024, math.MaxUint16)},
	DestinationPort: {Range(8080, 8080), Range(1024, math.MaxUint16)},
	Socket:          {Range(1, 1)},
	UID:             {Range(1000, 1000)},
	GID:             {Range(1000, 1000)},
	PacketMark:      {Range(0, 0)},
	ConnMark:        {Range(0, 0)},
	State:           {Numbers(redirect.New), Numbers(redirect.Established)},
}

// usualAddresses is the same for addresses, by family.
var usualAddresses = map[redirect.Family]map[Field][]Set{
	redirect.IPv4: {
		Source:      networks("10.244.0.2/32", "10.0.0.0/8", "203.0.113.7/32"),
		Destination: networks("203.0.113.7/32", "10.244.0.2/32", "192.0.2.0/24"),
	},
	redirect.IPv6: {
		Source:      networks("fd00:244::2/128", "fc00::/7", "2001:db8:d::7/128"),
		Destination: networks("2001:db8:d::7/128", "fd00:244::2/128", "2001:db8::/32"),
	},
}

func networks(texts ...string) []Set {
	sets := make([]Set, len(texts))
	for i, text := range texts {
		sets[i] = Networks(netip.MustParsePrefix(text))
	}
	return sets
}

// Example returns a packet of the class, a usual one if there is any.
func (c Class) Example() Packet {
	span := func(f Field) Span {
		for _, wanted := range slices.Concat(usual[f], usualAddresses[c.Family][f]) {
			if both := c.sets[f].And(wanted); !both.Empty() {
				return both.spans[0]
			}
		}
		return c.sets[f].spans[0]
	}
	pick := func(f Field) Value { return span(f).First }
	at := func(addr, port Field) netip.AddrPort {
		return netip.AddrPortFrom(pick(addr).Addr(c.Family), uint16(pick(port).Number()))
	}
	p := Packet{
		Protocol:    redirect.Protocol(pick(Protocol).Number()),
		Source:      at(Source, SourcePort),
		Destination: at(Destination, DestinationPort),
		Mark:        pick(PacketMark).Number(),
		ConnMark:    pick(ConnMark).Number(),
		State:       redirect.State(pick(State).Number()),
	}
	if pick(Socket).Number() == 1 {
		p.Owner = &Owner{UID: pick(UID).Number(), GID: pick(GID).Number()}
	}
	if p.In = span(Interface).name(); c.Leaves {
		p.In, p.Out = "", p.In
	}
	return p
}
