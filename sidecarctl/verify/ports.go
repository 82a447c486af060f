package verify

import (
	"cmp"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// An endpoint is where rules send packets to.
type endpoint struct {
	port        uint16
	protocol    redirect.Protocol
	leaves      bool // what the pod sends comes here, to a loopback address
	enters      bool // what enters the pod comes here, to an address of the pod
	transparent bool // by TPROXY, which hands packets to a transparent socket only
}

// endpoints are those of a ruleset, by port and protocol.
func endpoints(rs redirect.Ruleset) []endpoint {
	found := map[[2]uint16]*endpoint{}
	for _, chain := range rs.Chains {
		if chain.Hook != redirect.NoHook {
			walk(rs, chain, map[string]bool{}, func(r redirect.Rule) {
				key := [2]uint16{r.Then.Port, uint16(r.If.Protocol)}
				if found[key] == nil {
					found[key] = &endpoint{port: r.Then.Port, protocol: r.If.Protocol}
				}
				e := found[key]
				e.leaves = e.leaves || chain.Hook == redirect.Output
				e.enters = e.enters || chain.Hook == redirect.Prerouting
				e.transparent = e.transparent || r.Then.Verb == redirect.TProxy
			})
		}
	}
	var all []endpoint
	for _, e := range found {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
	})
	return all
}

// walk calls f with the rules that redirect, in a chain and in those that it jumps to.
func walk(rs redirect.Ruleset, chain redirect.Chain, seen map[string]bool,
	f func(redirect.Rule)) {
	for _, r := range chain.Rules {
		switch r.Then.Verb {
		case redirect.Redirect, redirect.TProxy:
			f(r)
		case redirect.Jump:
			at := slices.IndexFunc(rs.Chains, func(c redirect.Chain) bool {
				return c.Hook == redirect.NoHook && c.Name == r.Then.Chain
			})
			if at >= 0 && !seen[r.Then.Chain] {
				seen[r.Then.Chain] = true
				walk(rs, rs.Chains[at], seen, f)
			}
		default: // it leads nowhere
		}
	}
}

// purpose names a port of the proxy.
func purpose(port uint16, ports redirect.Listen) string {
	switch port {
	case ports.Outbound:
		return "outbound"
	case ports.Inbound:
		return "inbound"
	case ports.DNS:
		return "DNS"
	}
	return "tunnel"
}

// silence says what becomes of packets where nobody listens.
func (e endpoint) silence(ports redirect.Listen) string {
	switch purpose(e.port, ports) {
	case "outbound":
		return "what the app sends is refused"
	case "DNS":
		return "the app's names are not resolved"
	}
	if e.transparent {
		return "what enters is dropped"
	}
	return "what enters is refused"
}
