package validate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// pod is what the addresses are by which this pod can be called.
type pod struct {
	lo  []netip.Prefix // of the loopback interface
	own []netip.Addr   // by which others reach the pod
}

// findPod lists the addresses of this network namespace.
func findPod() (pod, error) {
	links, err := net.Interfaces()
	if err != nil {
		return pod{}, fmt.Errorf("list network interfaces: %w", err)
	}
	var p pod
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			return pod{}, fmt.Errorf("list addresses of %s: %w", link.Name, err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // of a point-to-point link of another kind
			}
			switch addr := prefix.Addr(); {
			case link.Flags&net.FlagLoopback != 0:
				p.lo = append(p.lo, prefix)
			case addr.IsGlobalUnicast() || addr.Is4(): // IPv4 leaves nodes by link-local ones, too
				p.own = append(p.own, addr)
			}
		}
	}
	return p, nil
}

// has reports whether the pod can be called by an address. Of IPv4, lo has whole networks.
func (p pod) has(a netip.Addr) bool {
	return slices.Contains(p.own, a) || slices.ContainsFunc(p.lo, func(on netip.Prefix) bool {
		return on.Addr() == a || a.Is4() && on.Contains(a)
	})
}

// choose returns the calls that the pod can make, each to an address that it has.
//
// IPv6 is left out where nobody reaches the pod by it: lo may have it all the same, and a node
// without ip6tables starts such a pod with no more than a warning.
func (p pod) choose(calls []Call) []Call {
	var chosen []Call
	for _, c := range calls {
		i := slices.IndexFunc(p.own, func(a netip.Addr) bool { return a.Is4() == c.From.Is4() })
		if !p.has(c.From) || i < 0 && (c.From.Is6() || !p.has(c.To.Addr())) {
			continue
		}
		if !p.has(c.To.Addr()) {
			c = Call{p.own[i], netip.AddrPortFrom(p.own[i], c.To.Port())}
		}
		chosen = append(chosen, c)
	}
	return chosen
}
