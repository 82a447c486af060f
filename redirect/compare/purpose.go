package compare

import (
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Purpose is a kind of difference from istio-init that is on purpose.
type Purpose struct {
	Reason string // the end of a sentence
	Readme string // the kind in a sentence or two; empty: told elsewhere

	// About says which packets of a difference, whose side A is istio-init, are of the kind: those
	// for which one of the answers is yes. A mistake about the same packets is of another.
	About func(Pod, Difference) []packet.Question
}

// Pod is what two sides were asked for.
type Pod struct {
	Policy redirect.Policy // by side B

	// What istio-init was given, as far as the policy does not show it.
	IPv6   bool           // it writes rules of IPv6
	Mapped []netip.Prefix // IPv4-mapped CIDRs among those of -i and -x
	GIDs   []uint32       // of -g, else the uids
	Open   []uint16       // of -d
	DNS    []netip.Prefix // its nameservers, as networks of one address; everywhere: none
}

// Purposes lists the differences from istio-init that are on purpose.
var Purposes = []Purpose{
	{
		Reason: "rules are written for both families",
		Readme: "Rules are written for both families, whatever addresses the pod has.",
		About: func(p Pod, d Difference) []packet.Question {
			return all(d, d.Class.Family == redirect.IPv6 && !p.IPv6)
		},
	},
	{
		Reason: "the tunnel port enters the proxy by itself",
		Readme: "Under TPROXY the tunnel port 15008 is left alone, as it is under REDIRECT.",
		About: func(p Pod, d Difference) []packet.Question {
			return some(p.transparent() && d.arrives() && d.B.Outcome == packet.Passes,
				packet.DestinationPort, packet.Numbers(p.Policy.Ports.Tunnel))
		},
	},
	{
		Reason: "what a virtual machine sends is outbound",
		Readme: "Under TPROXY virtual interfaces are treated as outbound, too.",
		About: func(p Pod, d Difference) []packet.Question {
			return some(p.transparent() && !d.Class.Leaves && p.outbound(d), packet.Interface,
				union(p.Policy.VirtualInterfaces, packet.Names))
		},
	},
	{
		Reason: "nothing inbound is captured, and nothing is marked for it",
		Readme: "Under TPROXY without captured inbound ports no packet gets a mark.",
		About: func(p Pod, d Difference) []packet.Question {
			inbound := p.Policy.Inbound.All || len(p.Policy.Inbound.Ports) > 0
			return all(d, p.transparent() && !inbound && d.A.Outcome == d.B.Outcome &&
				d.A.Port == d.B.Port && d.A.Zone == d.B.Zone && d.A.Local == d.B.Local)
		},
	},
	{
		Reason: "15020 stays open",
		Readme: "15020 stays open inbound even if a pod names another status port.",
		About: func(p Pod, d Difference) []packet.Question {
			return some(p.Policy.Inbound.All && d.arrives() && d.B.Outcome == packet.Passes &&
				!slices.Contains(p.Open, 15020), packet.DestinationPort, packet.Range(15020, 15020))
		},
	},
	{
		Reason: "an IPv4-mapped CIDR counts as IPv4",
		Readme: "An IPv4-mapped CIDR counts as IPv4, which is what the kernel sees: whoever " +
			"excludes `::ffff:0:0/96` excludes all of IPv4.",
		About: func(p Pod, d Difference) []packet.Question {
			return some(d.B.Outcome != packet.Dropped, packet.Destination,
				union(p.Mapped, func(mapped netip.Prefix) packet.Set {
					if d.Class.Family == redirect.IPv4 {
						mapped = netip.PrefixFrom(mapped.Addr().Unmap(), mapped.Bits()-96)
					}
					return packet.Networks(mapped)
				}))
		},
	},
	{
		Reason: "the runtime does not pass the pod's nameservers",
		Readme: "Where the runtime does not pass the pod's nameservers, capture of DNS takes " +
			"all of port 53.",
		About: func(p Pod, d Difference) []packet.Question {
			applies := p.Policy.DNS.Everywhere && len(p.DNS) > 0 && d.B.Outcome != packet.Dropped
			dns := packet.Numbers[uint16](53)
			known := union(p.DNS, func(server netip.Prefix) packet.Set {
				if redirect.FamilyOf(server.Addr()) != d.Class.Family {
					return packet.Set{}
				}
				return packet.Networks(server)
			})
			to, _ := d.Class.Of(packet.Destination).Meets(known)
			from, _ := d.Class.Of(packet.Source).Meets(known)
			return append(some(applies && !to, packet.DestinationPort, dns),
				some(applies && !from, packet.SourcePort, dns)...)
		},
	},
	{
		Reason: "a proxy that runs as root is known by its group",
		Readme: "A proxy that runs as root is known by its runAsGroup.",
		About: func(p Pod, d Difference) []packet.Question {
			b, a := packet.Numbers(p.Policy.Proxy.GIDs...), packet.Numbers(p.GIDs...)
			return some(d.Class.Leaves && d.B.Outcome != packet.Dropped, packet.GID,
				packet.Union(b.Without(a), a.Without(b)))
		},
	},
	{
		Reason: "the pod excludes this user",
		About: func(p Pod, d Difference) []packet.Question {
			return some(d.Class.Leaves && d.B.Outcome == packet.Passes, packet.UID,
				union(p.Policy.Outbound.ExcludeUIDs, func(r redirect.IDRange) packet.Set {
					return packet.Range(r.First, r.Last)
				}))
		},
	},
}

// Separate gives the differences that are on purpose their reasons. One that is so in part, or for
// several reasons, is split.
func Separate(differences []Difference, p Pod) []Difference {
	var separated []Difference
	for _, d := range differences {
		for _, purpose := range Purposes {
			for _, question := range purpose.About(p, d) {
				part := d
				part.Class, d.Class = d.Class.Split(question)
				if part.Reason = purpose.Reason; !part.Class.Empty() {
					part.Example = example(outcome{part.Class, part.A, part.B})
					separated = append(separated, part)
				}
			}
		}
		if !d.Class.Empty() {
			d.Example = example(outcome{d.Class, d.A, d.B})
			separated = append(separated, d)
		}
	}
	return separated
}

// some asks for the packets with some values of a field.
func some(applies bool, f packet.Field, set packet.Set) []packet.Question {
	if !applies || set.Empty() {
		return nil
	}
	return []packet.Question{{Field: f, Set: set}}
}

// all asks for all packets of a difference.
func all(d Difference, applies bool) []packet.Question {
	return some(applies, packet.Protocol, d.Class.Of(packet.Protocol))
}

func union[T any](list []T, set func(T) packet.Set) packet.Set {
	sets := make([]packet.Set, len(list))
	for i, item := range list {
		sets[i] = set(item)
	}
	return packet.Union(sets...)
}

func (p Pod) transparent() bool { return p.Policy.Mode == redirect.ModeTProxy }

// outbound reports whether side B treats what enters as outbound: where all of that is captured, it
// redirects TCP that begins a connection.
func (p Pod) outbound(d Difference) bool {
	tcp, _ := d.Class.Of(packet.Protocol).Meets(packet.Numbers(redirect.TCP))
	begins, _ := d.Class.Of(packet.State).Meets(packet.Numbers(redirect.New, redirect.Related))
	if d.B.Outcome == packet.Passes {
		return !p.Policy.Outbound.All || !tcp || !begins
	}
	return d.B.Outcome == packet.Redirected && d.B.Port == p.Policy.Ports.Outbound
}

// arrives reports whether the packets come in, be it from the pod itself.
func (d Difference) arrives() bool {
	return !d.Class.Leaves || d.Class.Of(packet.Interface).Equal(packet.Names("lo"))
}
