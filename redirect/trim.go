package redirect

import (
	"net/netip"
	"slices"
	"strings"
)

// trim leaves out what no packet needs: a return of packets that no later rule of the chain is
// about, a jump to a chain without rules, and a chain that no rule jumps to.
func trim(chains []Chain) []Chain {
	for before := -1; before != size(chains); {
		before = size(chains)
		entered := map[string]bool{}
		for i := range chains {
			rules := chains[i].Rules
			first := len(rules) // of those that stay, which move to the end
			for n := len(rules) - 1; n >= 0; n-- {
				then := rules[n].Then
				if then.Verb == Return && !acts(chains, rules[first:], &rules[n].If) ||
					then.Verb == Jump && !acts(chains, chainOf(chains, then.Chain), &Match{}) {
					continue
				}
				entered[then.Chain] = true
				first--
				rules[first] = rules[n]
			}
			chains[i].Rules = rules[first:]
		}
		chains = slices.DeleteFunc(chains, func(c Chain) bool {
			return len(c.Rules) == 0 || c.Hook == NoHook && !entered[c.Name]
		})
	}
	return chains
}

// size counts chains and rules.
func size(chains []Chain) int {
	n := len(chains)
	for i := range chains {
		n += len(chains[i].Rules)
	}
	return n
}

// chainOf returns the rules of a chain without a hook, whose name no other has.
func chainOf(chains []Chain, name string) []Rule {
	for i := range chains {
		if chains[i].Name == name {
			return chains[i].Rules
		}
	}
	return nil
}

// acts reports whether one of the rules may do something with a packet that matches m.
func acts(chains []Chain, rules []Rule, m *Match) bool {
	for i := range rules {
		then := &rules[i].Then
		if then.Verb == Return || !m.meets(&rules[i].If) {
			continue
		}
		if then.Verb != Jump || acts(chains, chainOf(chains, then.Chain), m) {
			return true
		}
	}
	return false
}

// meets reports whether a packet may match both. It may say so where none can.
func (m *Match) meets(o *Match) bool {
	return (m.Protocol == AnyProtocol || o.Protocol == AnyProtocol || m.Protocol == o.Protocol) &&
		m.In.meets(o.In) && m.Out.meets(o.Out) &&
		m.Source.meets(o.Source) && m.Destination.meets(o.Destination) &&
		m.SourcePort.meets(o.SourcePort) && m.DestinationPort.meets(o.DestinationPort) &&
		m.UID.meets(o.UID) && m.GID.meets(o.GID)
}

func (i Interface) meets(o Interface) bool {
	if i == "" || o == "" {
		return true
	}
	stem, other := strings.TrimSuffix(string(i), "+"), strings.TrimSuffix(string(o), "+")
	return i.Holds(other) || o.Holds(stem)
}

func (a Addresses) meets(o Addresses) bool {
	if a.zero() || o.zero() || a.Not && o.Not {
		return true
	}
	if a.Not {
		return o.meets(a)
	}
	if !o.Not {
		return overlap(a.Prefixes, o.Prefixes)
	}
	return slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(o.Prefixes, func(q netip.Prefix) bool {
			return q.Bits() <= p.Bits() && q.Contains(p.Addr())
		})
	})
}

// overlap reports whether an address is in a prefix of each list. The prefixes of a list do not
// overlap, so that one pass over both, in order, is enough: they may be thousands.
func overlap(a, b []netip.Prefix) bool {
	a, b = inOrder(a), inOrder(b)
	for len(a) > 0 && len(b) > 0 && !a[0].Overlaps(b[0]) {
		if a[0].Addr().Less(b[0].Addr()) {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return len(a) > 0 && len(b) > 0
}

// inOrder returns the prefixes by their addresses, as those of a policy are already.
func inOrder(list []netip.Prefix) []netip.Prefix {
	byAddress := func(p, q netip.Prefix) int { return p.Addr().Compare(q.Addr()) }
	if slices.IsSortedFunc(list, byAddress) {
		return list
	}
	return slices.SortedFunc(slices.Values(list), byAddress)
}

func (p Ports) meets(o Ports) bool {
	if p.zero() || o.zero() || p.Not && o.Not {
		return true
	}
	if p.Not {
		return o.meets(p)
	}
	return slices.ContainsFunc(p.List, o.holds)
}

func (ids IDs) meets(o IDs) bool {
	return len(ids) == 0 || len(o) == 0 || slices.ContainsFunc(ids, func(r IDRange) bool {
		return slices.ContainsFunc(o,
			func(s IDRange) bool { return r.First <= s.Last && s.First <= r.Last })
	})
}
