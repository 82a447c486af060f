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
	// About reports whether a difference, whose side A is istio-init, is of the kind.
	About func(Difference) bool
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
	return []Purpose{
		{
			Reason: "rules are written for both families",
			Readme: "Rules are written for both families, whatever addresses the pod has.",
			About: func(d Difference) bool {
				return d.Class.Family == redirect.IPv6 && !given.IPv6
			},
		},
		{
			Reason: "the tunnel port enters the proxy by itself",
			Readme: "Under TPROXY the tunnel port 15008 is left alone, as it is under REDIRECT.",
			About: func(d Difference) bool {
				return transparent && only(d, packet.DestinationPort, packet.Numbers(p.Ports.Tunnel))
			},
		},
		{
			Reason: "what a virtual machine sends is outbound",
			Readme: "Under TPROXY virtual interfaces are treated as outbound, too.",
			About: func(d Difference) bool {
				return transparent && !d.Class.Leaves &&
					only(d, packet.Interface, names(p.VirtualInterfaces))
			},
		},
		{
			Reason: "15020 stays open",
			Readme: "15020 stays open inbound even if a pod names another status port.",
			About: func(d Difference) bool {
				return p.Inbound.All &&
					only(d, packet.DestinationPort, packet.Numbers[uint16](15020))
			},
		},
		{
			Reason: "an IPv4-mapped CIDR counts as IPv4",
			Readme: "An IPv4-mapped CIDR counts as IPv4, which is what the kernel sees: whoever " +
				"excludes `::ffff:0:0/96` excludes all of IPv4.",
			About: func(d Difference) bool {
				return only(d, packet.Destination, mapped(given.Mapped, d.Class.Family))
			},
		},
		{
			Reason: "a proxy that runs as root is known by its group",
			Readme: "A proxy that runs as root is known by its runAsGroup.",
			About: func(d Difference) bool {
				return d.Class.Leaves && only(d, packet.GID,
					packet.Numbers(p.Proxy.GIDs...).Without(packet.Numbers(given.GIDs...)))
			},
		},
		{
			Reason: "the pod excludes this user",
			About: func(d Difference) bool {
				return d.Class.Leaves && only(d, packet.UID, users(p.Outbound.ExcludeUIDs))
			},
		},
	}
}

// only reports whether a difference is about no other values of a field.
func only(d Difference, f packet.Field, set packet.Set) bool {
	in, out := d.Class.Of(f).Meets(set)
	return in && !out
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
