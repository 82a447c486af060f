package compare_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// mutant is a ruleset with one thing changed.
type mutant struct {
	name  string
	rules redirect.Ruleset
}

// with returns the ruleset with other rules in a chain.
func with(rs redirect.Ruleset, chain int, rules []redirect.Rule) redirect.Ruleset {
	rs.Chains = slices.Clone(rs.Chains)
	rs.Chains[chain].Rules = rules
	return rs
}

// mutants changes everything that can be changed about a ruleset, one thing at a time.
func mutants(rs redirect.Ruleset) []mutant {
	var all []mutant
	for i, c := range rs.Chains {
		for j, r := range c.Rules {
			at := fmt.Sprintf("%s %s %d", c.Table, c.Name, j+1)
			add := func(what string, rules []redirect.Rule) {
				all = append(all, mutant{at + ": " + what, with(rs, i, rules)})
			}
			add("deleted", slices.Delete(slices.Clone(c.Rules), j, j+1))
			if j > 0 {
				swapped := slices.Clone(c.Rules)
				swapped[j-1], swapped[j] = swapped[j], swapped[j-1]
				add("swapped", swapped)
			}
			for what, changed := range changes(r) {
				rules := slices.Clone(c.Rules)
				rules[j] = changed
				add(what, rules)
			}
		}
	}
	return all
}

// changes returns a rule with one thing changed, by what it is.
func changes(r redirect.Rule) map[string]redirect.Rule {
	all := map[string]redirect.Rule{}
	changed := func(what string, set func(*redirect.Rule)) {
		other := r
		set(&other)
		all[what] = other
	}
	m := r.If
	for i := range m.DestinationPort.List {
		changed(fmt.Sprintf("port %d", i), func(r *redirect.Rule) {
			r.If.DestinationPort.List = slices.Clone(m.DestinationPort.List)
			r.If.DestinationPort.List[i]++
		})
	}
	for i, p := range m.Destination.Prefixes {
		changed(fmt.Sprintf("address %d", i), func(r *redirect.Rule) {
			r.If.Destination.Prefixes = slices.Clone(m.Destination.Prefixes)
			r.If.Destination.Prefixes[i] = netip.PrefixFrom(p.Masked().Addr(), max(p.Bits()-1, 1))
		})
	}
	for i := range m.UID {
		changed(fmt.Sprintf("uid %d", i), func(r *redirect.Rule) {
			r.If.UID = slices.Clone(m.UID)
			r.If.UID[i].Last++
		})
	}
	for i := range m.GID {
		changed(fmt.Sprintf("gid %d", i), func(r *redirect.Rule) {
			r.If.GID = slices.Clone(m.GID)
			r.If.GID[i].Last++
		})
	}
	for what, not := range map[string]bool{
		"destination": len(m.Destination.Prefixes) > 0, "source": len(m.Source.Prefixes) > 0,
		"ports": len(m.DestinationPort.List) > 0, "mark": m.Mark.Value > 0,
		"connection's mark": m.ConnMark.Value > 0,
	} {
		if not {
			changed("negated "+what, func(r *redirect.Rule) { negate(&r.If, what) })
		}
	}
	if r.Then.Port > 0 {
		changed("target port", func(r *redirect.Rule) { r.Then.Port++ })
	}
	if r.Then.Mark > 0 {
		changed("target mark", func(r *redirect.Rule) { r.Then.Mark++ })
	}
	for _, verb := range []redirect.Verb{redirect.Return, redirect.Accept, redirect.Drop} {
		if verb != r.Then.Verb {
			changed("verb "+(redirect.Action{Verb: verb}).String(),
				func(r *redirect.Rule) { r.Then = redirect.Action{Verb: verb} })
		}
	}
	return all
}

func negate(m *redirect.Match, what string) {
	switch what {
	case "destination":
		m.Destination.Not = !m.Destination.Not
	case "source":
		m.Source.Not = !m.Source.Not
	case "ports":
		m.DestinationPort.Not = !m.DestinationPort.Not
	case "mark":
		m.Mark.Not = !m.Mark.Not
	case "connection's mark":
		m.ConnMark.Not = !m.ConnMark.Not
	}
}

func mutated(random *rand.Rand, rs redirect.Ruleset) redirect.Ruleset {
	return pick(random, mutants(rs)).rules
}
