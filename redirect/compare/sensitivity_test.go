package compare_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// pieces keeps one of the values that no rule tells apart.
func pieces[T comparable](values []T, meets func(redirect.Match, T) bool,
	rules []redirect.Rule) []T {
	seen := map[string]bool{}
	var kept []T
	for _, v := range values {
		var b strings.Builder
		for _, r := range rules {
			fmt.Fprint(&b, meets(r.If, v))
		}
		if !seen[b.String()] {
			seen[b.String()] = true
			kept = append(kept, v)
		}
	}
	return kept
}

// enumeration has for each field one value of every piece.
type enumeration struct {
	in, out        []string
	from, to       []netip.Addr
	sports, dports []uint16
	owners         []*packet.Owner
	marks, onConns []uint32
	protocols      []redirect.Protocol
	states         []redirect.State
}

// enumerate finds the pieces of the rules of rulesets.
func enumerate(rulesets ...redirect.Ruleset) enumeration {
	c := usualConstants()
	var rules []redirect.Rule
	for _, rs := range rulesets {
		c.of(rs)
		for _, chain := range rs.Chains {
			rules = append(rules, chain.Rules...)
		}
		for _, route := range rs.Routes {
			rules = append(rules, redirect.Rule{Then: redirect.Action{Mark: route.Mark}})
		}
	}
	for _, r := range slices.Clone(rules) { // what a rule does may be what another asks
		then := redirect.Match{Mark: redirect.Mark{Value: r.Then.Mark},
			ConnMark: redirect.Mark{Value: r.Then.Mark}}
		rules = append(rules, redirect.Rule{If: then})
	}
	in := func(list []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	e := enumeration{protocols: []redirect.Protocol{redirect.TCP, redirect.UDP, 1},
		states: redirect.States}
	e.in = pieces(slices.DeleteFunc(slices.Clone(c.names), func(n string) bool { return n == "lo" }),
		func(m redirect.Match, n string) bool { return m.In.Holds(n) }, rules)
	e.out = pieces(append([]string{"lo"}, c.names...), func(m redirect.Match, n string) bool {
		return m.Out.Holds(n) || n == "lo"
	}, rules)
	e.from = pieces(c.sources, func(m redirect.Match, a netip.Addr) bool {
		return in(m.Source.Prefixes, a) || a.Is4() && m.Protocol == 0
	}, append(rules, redirect.Rule{}))
	e.to = pieces(c.destinations, func(m redirect.Match, a netip.Addr) bool {
		return in(m.Destination.Prefixes, a) || a.Is4() && m.Protocol == 0
	}, append(rules, redirect.Rule{}))
	e.sports = pieces(c.sourcePorts, func(m redirect.Match, p uint16) bool {
		return slices.Contains(m.SourcePort.List, p)
	}, rules)
	e.dports = pieces(c.ports, func(m redirect.Match, p uint16) bool {
		return slices.Contains(m.DestinationPort.List, p)
	}, rules)
	e.marks = pieces(c.marks,
		func(m redirect.Match, n uint32) bool { return m.Mark.Value == n }, rules)
	e.onConns = pieces(c.onConns,
		func(m redirect.Match, n uint32) bool { return m.ConnMark.Value == n }, rules)
	e.owners = []*packet.Owner{nil}
	for _, uid := range pieces(c.uids,
		func(m redirect.Match, id uint32) bool { return m.UID.Holds(id) }, rules) {
		for _, gid := range pieces(c.gids,
			func(m redirect.Match, id uint32) bool { return m.GID.Holds(id) }, rules) {
			e.owners = append(e.owners, &packet.Owner{UID: uid, GID: gid})
		}
	}
	return e
}

// each calls f with one packet of every combination of pieces, until it returns false.
func (e enumeration) each(f func(packet.Packet) bool) {
	e.ways(func(p packet.Packet) bool {
		for _, from := range e.from {
			for _, to := range e.to {
				if from.Is4() != to.Is4() {
					continue
				}
				for _, sport := range e.sports {
					for _, dport := range e.dports {
						p.Source = netip.AddrPortFrom(from, sport)
						p.Destination = netip.AddrPortFrom(to, dport)
						if !e.inState(p, f) {
							return false
						}
					}
				}
			}
		}
		return true
	})
}

func (e enumeration) ways(f func(packet.Packet) bool) {
	for _, proto := range e.protocols {
		for _, name := range e.in {
			if !f(packet.Packet{Protocol: proto, In: name}) {
				return
			}
		}
		for _, name := range e.out {
			for _, owner := range e.owners {
				if !f(packet.Packet{Protocol: proto, Out: name, Owner: owner}) {
					return
				}
			}
		}
	}
}

func (e enumeration) inState(p packet.Packet, f func(packet.Packet) bool) bool {
	for _, p.Mark = range e.marks {
		for _, p.ConnMark = range e.onConns {
			for _, p.State = range e.states {
				if !f(p) {
					return false
				}
			}
		}
	}
	return true
}

// The policies of which every rule is changed in every way. They have each kind of rule.
var changedPolicies = []string{"default", "tproxy", "include CIDRs", "include no CIDR",
	"include loopback", "exclude CIDRs", "include inbound ports", "exclude inbound ports",
	"include outbound ports", "exclude outbound ports", "exclude interface",
	"exclude interfaces by prefix", "virtual interface", "exclude uids", "dns", "dns everywhere",
	"drop invalid", "include groups", "exclude groups", "several proxy users"}

// Each change of a ruleset is reported, or concerns no packet.
func TestEachChangeIsSeen(t *testing.T) {
	t.Parallel()
	for _, r := range matrix.Alone() {
		if !slices.Contains(changedPolicies, r.Name) {
			continue
		}
		t.Run(strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			rs := redirect.Compile(policyOf(t, r))
			var c changesTried
			for _, m := range mutants(rs) {
				c.try(t, simulate.New(rs), simulate.New(m.rules), m.name,
					func() enumeration { return enumerate(rs, m.rules) })
			}
			c.report(t)
		})
	}
}

// changesTried counts what became of changes.
type changesTried struct{ reported, silent, packets int }

// try wants a change to be reported, or to concern none of the packets that are there.
func (c *changesTried) try(t *testing.T, whole, changed packet.Side, name string,
	packets func() enumeration) {
	t.Helper()
	if len(compare.Compare(whole, changed)) > 0 {
		c.reported++
		return
	}
	c.silent++
	packets().each(func(p packet.Packet) bool {
		c.packets++
		one := p.Class()
		if same(fateOf(whole, one), fateOf(changed, one)) {
			return true
		}
		t.Errorf("%s is not reported, and %+v (owner %+v) has another fate", name, p, p.Owner)
		return false
	})
}

func (c *changesTried) report(t *testing.T) {
	t.Helper()
	t.Logf("%d changes reported, %d concern none of %d packets", c.reported, c.silent, c.packets)
	if c.reported < 20 {
		t.Errorf("only %d changes reported", c.reported)
	}
}
