package compare

import (
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Purpose is a kind of difference from istio-init that is on purpose.
type Purpose struct {
	Reason string // the end of a sentence
	Readme string // the kind in a sentence or two; empty: told elsewhere

	// About says which packets of a difference, whose side A is istio-init, are of the kind; nil:
	// none of them.
	About func(Difference) *packet.Question
}

// Separate gives the differences that are on purpose their reasons. One that is so in part, or for
// several reasons, is split.
func Separate(differences []Difference, purposes []Purpose) []Difference {
	var separated []Difference
	for _, d := range differences {
		for _, p := range purposes {
			question := p.About(d)
			if question == nil {
				continue
			}
			part := d
			part.Class, d.Class = d.Class.Split(*question)
			if part.Reason = p.Reason; !part.Class.Empty() {
				part.Example = example(outcome{part.Class, part.A, part.B})
				separated = append(separated, part)
			}
		}
		if !d.Class.Empty() {
			d.Example = example(outcome{d.Class, d.A, d.B})
			separated = append(separated, d)
		}
	}
	return separated
}

// Init is what istio-init was given, as far as the policy does not show it any more.
type Init struct {
	IPv6   bool           // it writes rules of IPv6
	Mapped []netip.Prefix // IPv4-mapped CIDRs among those of -i and -x
	GIDs   []uint32       // of -g, else the uids
}

// Purposes lists the differences from istio-init that are on purpose, for one policy.
func Purposes(p redirect.Policy, given Init) []Purpose {
	transparent := p.Mode == redirect.ModeTProxy
	inbound := p.Inbound.All || len(p.Inbound.Ports) > 0
	return []Purpose{
		{
			Reason: "rules are written for both families",
			Readme: "Rules are written for both families, whatever addresses the pod has.",
			About: func(d Difference) *packet.Question {
				return all(d, d.Class.Family == redirect.IPv6 && !given.IPv6)
			},
		},
		{
			Reason: "the tunnel port enters the proxy by itself",
			Readme: "Under TPROXY the tunnel port 15008 is left alone, as it is under REDIRECT.",
			About: func(d Difference) *packet.Question {
				return some(transparent && arrives(d), packet.DestinationPort,
					packet.Numbers(p.Ports.Tunnel))
			},
		},
		{
			Reason: "what a virtual machine sends is outbound",
			Readme: "Under TPROXY virtual interfaces are treated as outbound, too.",
			About: func(d Difference) *packet.Question {
				return some(transparent && !d.Class.Leaves, packet.Interface,
					names(p.VirtualInterfaces))
			},
		},
		{
			Reason: "nothing inbound is captured, and nothing is marked for it",
			Readme: "Under TPROXY without captured inbound ports no packet gets a mark.",
			About: func(d Difference) *packet.Question {
				return all(d, transparent && !inbound && d.A.Outcome == d.B.Outcome &&
					d.A.Port == d.B.Port)
			},
		},
		{
			Reason: "15020 stays open",
			Readme: "15020 stays open inbound even if a pod names another status port.",
			About: func(d Difference) *packet.Question {
				return some(p.Inbound.All && arrives(d), packet.DestinationPort,
					packet.Numbers[uint16](15020))
			},
		},
		{
			Reason: "an IPv4-mapped CIDR counts as IPv4",
			Readme: "An IPv4-mapped CIDR counts as IPv4, which is what the kernel sees: whoever " +
				"excludes `::ffff:0:0/96` excludes all of IPv4.",
			About: func(d Difference) *packet.Question {
				return some(true, packet.Destination, mapped(given.Mapped, d.Class.Family))
			},
		},
		{
			Reason: "a proxy that runs as root is known by its group",
			Readme: "A proxy that runs as root is known by its runAsGroup.",
			About: func(d Difference) *packet.Question {
				ours, theirs := packet.Numbers(p.Proxy.GIDs...), packet.Numbers(given.GIDs...)
				return some(d.Class.Leaves, packet.GID,
					packet.Union(ours.Without(theirs), theirs.Without(ours)))
			},
		},
		{
			Reason: "the pod excludes this user",
			About: func(d Difference) *packet.Question {
				return some(d.Class.Leaves && d.B.Outcome == packet.Passes, packet.UID,
					users(p.Outbound.ExcludeUIDs))
			},
		},
	}
}

// some asks for the packets with some values of a field.
func some(applies bool, f packet.Field, set packet.Set) *packet.Question {
	if !applies || set.Empty() {
		return nil
	}
	return &packet.Question{Field: f, Set: set}
}

// all asks for all packets of a difference.
func all(d Difference, applies bool) *packet.Question {
	return some(applies, packet.Protocol, d.Class.Of(packet.Protocol))
}

// arrives reports whether the packets come in, be it from the pod itself.
func arrives(d Difference) bool {
	return !d.Class.Leaves || d.Class.Of(packet.Interface).Equal(packet.Names("lo"))
}

func names(list []redirect.Interface) packet.Set {
	sets := make([]packet.Set, len(list))
	for i, name := range list {
		sets[i] = packet.Names(name)
	}
	return packet.Union(sets...)
}

func users(list redirect.IDs) packet.Set {
	sets := make([]packet.Set, len(list))
	for i, r := range list {
		sets[i] = packet.Range(r.First, r.Last)
	}
	return packet.Union(sets...)
}

// mapped returns the addresses that IPv4-mapped CIDRs are in one of the families.
func mapped(prefixes []netip.Prefix, f redirect.Family) packet.Set {
	var of []netip.Prefix
	for _, p := range prefixes {
		if f == redirect.IPv4 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		of = append(of, p)
	}
	return packet.Networks(of...)
}
