package validation

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
)

// landing is where a path ends, as far as this process can see it.
type landing struct {
	at     netip.AddrPort // the socket that gets it; not valid: none within the pod
	answer netip.AddrPort // UDP: from where its answer seems to come
	why    string         // why it gets to no socket of ours
}

func (l landing) String() string {
	text := fmt.Sprintf("arrives at %s", l.at)
	if l.answer.IsValid() {
		text += fmt.Sprintf(", answered from %s", l.answer)
	}
	return text
}

// A player plays packets by some rules, and notes which of them they meet.
type player struct {
	rules *simulate.Rules
	met   map[ruleAt]bool
}

// ruleAt is where a rule stands.
type ruleAt struct {
	table redirect.Table
	chain string
	index int
}

func newPlayer(rs redirect.Ruleset) player {
	return player{simulate.New(rs), map[ruleAt]bool{}}
}

// expect plays the first packet of a path, and what follows it.
func (r player) expect(p packet.Packet) landing {
	fate := r.play(p)
	switch {
	case fate.Outcome == packet.Handed:
		return landing{why: "only a transparent socket would get it"}
	case fate.Outcome == packet.Dropped:
		return landing{why: "the rules drop it"}
	case fate.Outcome == packet.Passes && p.Out != lo && !fate.Local:
		return landing{why: "it leaves the pod"}
	}
	l := landing{at: p.Destination}
	if fate.Outcome == packet.Redirected {
		family := redirect.FamilyOf(p.Destination.Addr())
		l.at = netip.AddrPortFrom(loopback(family), fate.Port)
	}
	answer := packet.Packet{Out: lo, Protocol: p.Protocol, Owner: p.Owner, Source: l.at,
		Destination: p.Source}
	if p.Protocol == redirect.UDP {
		l.answer = l.at
		// Connection tracking knows the answer as one, and gives it the address that was asked, if
		// both are tracked in one zone.
		if r.play(answer).Zone == fate.Zone {
			l.answer = p.Destination
		}
		return l
	}
	later := []packet.Packet{answer}
	if fate.Outcome != packet.Redirected { // else what mangle sees of it is another's matter
		later = append(later, p)
	}
	for _, next := range later {
		next.State = redirect.Established
		if fate := r.play(next); fate.Outcome != packet.Passes {
			return landing{why: "the rules keep what follows the first packet"}
		}
	}
	return l
}

func (r player) play(p packet.Packet) packet.Fate {
	class := p.Class()
	fate, _ := r.rules.Fate(class) // one packet leaves nothing open
	for _, m := range fate.Met {
		r.met[ruleAt{m.Table, m.Chain, m.Index}] = true
	}
	return fate.Known(class)
}

// plan says of each path what is expected of it, or why it cannot be tried.
func plan(policy redirect.Policy, s site, o Options) (attempts []attempt, untried []Path) {
	rules, none := newPlayer(redirect.Compile(policy)), newPlayer(redirect.Ruleset{})
	for _, path := range candidates(policy, s, o) {
		first, err := s.first(path, policy)
		if err != nil {
			path.Seen = err.Error()
			if near, err := s.first(s.nearby(path), policy); err == nil {
				path.tells = rules.expect(near) != none.expect(near)
			}
			untried = append(untried, path)
			continue
		}
		want := rules.expect(first)
		if want.why != "" {
			path.Seen = want.why
			untried = append(untried, path)
			continue
		}
		path.Want, path.tells = want.String(), none.expect(first) != want
		attempts = append(attempts, attempt{path, first, want})
	}
	return attempts, untried
}

// nearby is a path to a neighbour in place of somebody to whom there is no route.
func (s site) nearby(path Path) Path {
	own := func(a netip.Addr) bool { return a.Is4() == path.To.Addr().Is4() }
	if i := slices.IndexFunc(s.addrs, own); i >= 0 {
		path.To = netip.AddrPortFrom(s.addrs[i].Next(), path.To.Port())
	}
	return path
}

// untested lists the rules that could be missing without any of the tried paths ending elsewhere,
// and the addresses and routes.
func untested(rs redirect.Ruleset, tried []attempt) []Untested {
	whole := newPlayer(rs)
	for _, a := range tried {
		whole.expect(a.packet)
	}
	var all []Untested
	for i, c := range rs.Chains {
		for j, r := range c.Rules {
			missing := lines(r.If)
			if whole.met[ruleAt{c.Table, c.Name, j}] {
				without := newPlayer(omit(rs, i, j))
				for _, a := range tried {
					if without.expect(a.packet) != a.want {
						missing = slices.DeleteFunc(missing, a.shows)
					}
				}
			}
			for _, families := range missing {
				where := fmt.Sprintf("%s %s %d", c.Table, c.Name, j+1)
				if len(families) == 1 {
					where += " " + families[0].String()
				}
				all = append(all, Untested{where, r.Why})
			}
		}
	}
	for _, address := range rs.Addresses {
		calls := func(a attempt) bool { return a.To.Addr() == address.Addr() }
		if !slices.ContainsFunc(tried, calls) {
			all = append(all, Untested{lo, "address " + address.String()})
		}
	}
	for _, r := range rs.Routes {
		all = append(all, Untested{fmt.Sprintf("routing table %d", r.Table),
			fmt.Sprintf("packets with mark %d are delivered in the pod", r.Mark)})
	}
	return all
}

// shows reports whether an attempt is of one of the families.
func (a attempt) shows(families []redirect.Family) bool {
	return slices.Contains(families, redirect.FamilyOf(a.packet.Destination.Addr()))
}

// lines are the families of each line that a rule is in the kernel: a line for each, if it asks for
// addresses, else one for both.
func lines(m redirect.Match) [][]redirect.Family {
	if len(m.Source.Prefixes)+len(m.Destination.Prefixes) == 0 {
		return [][]redirect.Family{redirect.Families}
	}
	var all [][]redirect.Family
	for _, f := range redirect.Families {
		if _, possible := m.For(f); possible {
			all = append(all, []redirect.Family{f})
		}
	}
	return all
}

// omit returns the rules without one of them.
func omit(rs redirect.Ruleset, chain, rule int) redirect.Ruleset {
	rs.Chains = slices.Clone(rs.Chains)
	c := &rs.Chains[chain]
	c.Rules = slices.Delete(slices.Clone(c.Rules), rule, rule+1)
	return rs
}
