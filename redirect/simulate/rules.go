// Package simulate plays packets through a ruleset as the kernel would.
//
//	fate := simulate.Packet(rules, packet) // one packet
//	fmt.Print(fate)                        // where it ends, and the rules that it met
//
//	side := simulate.New(rules)            // many packets at once
//	fate, question := side.Fate(class)
//
// Be aware: it plays one packet, the first of a connection unless the packet's State says
// otherwise. It knows the rules, not who listens, nor whether an interface has an address: what
// enters by one that has none cannot be redirected, and the kernel drops it.
package simulate

import (
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Rules is a ruleset made ready for being played.
type Rules struct {
	chains map[place]*chain
	routed packet.Set // marks whose packets are delivered within the pod
}

type place struct {
	family redirect.Family
	table  redirect.Table
	chain  string
}

type chain struct{ rules []rule }

// rule is one that some packet of the family can meet.
type rule struct {
	hook       redirect.Hook // NoHook: wherever the chain is entered from
	conditions []condition
	then       redirect.Action
	to         *chain // of a jump
	met        packet.Met
}

// condition holds where a field's value is in set, or with not where it is not.
type condition struct {
	field packet.Field
	set   packet.Set
	not   bool
}

// New makes a ruleset ready.
func New(rs redirect.Ruleset) *Rules {
	r := &Rules{chains: map[place]*chain{}}
	for _, f := range redirect.Families {
		for _, c := range rs.Chains {
			r.chains[place{f, c.Table, c.Name}] = &chain{}
		}
		for _, c := range rs.Chains {
			r.add(f, c)
		}
	}
	for _, route := range rs.Routes {
		r.routed = packet.Union(r.routed, packet.Numbers(route.Mark))
	}
	return r
}

func (r *Rules) add(f redirect.Family, c redirect.Chain) {
	into := r.chains[place{f, c.Table, c.Name}]
	for i, has := range c.Rules {
		match, possible := has.If.For(f)
		if !possible || match.In != "" && match.Out != "" {
			continue
		}
		next := rule{
			conditions: conditions(match), then: has.Then,
			met: packet.Met{Table: c.Table, Chain: c.Name, Index: i, Rule: has},
		}
		switch {
		case match.In != "":
			next.hook = redirect.Prerouting
		case match.Out != "":
			next.hook = redirect.Output
		}
		if has.Then.Verb == redirect.Jump {
			if next.to = r.chains[place{f, c.Table, has.Then.Chain}]; next.to == nil {
				next.to = &chain{} // the kernel refuses such a rule
			}
		}
		into.rules = append(into.rules, next)
	}
}

// conditions says of a match of one family what it asks, what is cheap and common first.
func conditions(m redirect.Match) []condition {
	var list []condition
	ask := func(asked bool, f packet.Field, set packet.Set, not bool) {
		if asked {
			list = append(list, condition{f, set, not})
		}
	}
	ask(m.Protocol != redirect.AnyProtocol, packet.Protocol, packet.Numbers(m.Protocol), false)
	ask(m.In+m.Out != "", packet.Interface, packet.Names(m.In+m.Out), false)
	ask(len(m.UID)+len(m.GID) > 0, packet.Socket, packet.Range(1, 1), false)
	ask(len(m.UID) > 0, packet.UID, ids(m.UID), false)
	ask(len(m.GID) > 0, packet.GID, ids(m.GID), false)
	address := func(f packet.Field, a redirect.Addresses) {
		ask(len(a.Prefixes) > 0, f, packet.Networks(a.Prefixes...), a.Not)
	}
	address(packet.Source, m.Source)
	address(packet.Destination, m.Destination)
	port := func(f packet.Field, p redirect.Ports) {
		ask(len(p.List) > 0, f, packet.Numbers(p.List...), p.Not)
	}
	port(packet.SourcePort, m.SourcePort)
	port(packet.DestinationPort, m.DestinationPort)
	mark := func(f packet.Field, mark redirect.Mark) {
		ask(mark.Value != 0, f, packet.Numbers(mark.Value), mark.Not)
	}
	mark(packet.PacketMark, m.Mark)
	ask(m.ConnMark.Value != 0, packet.State, packet.Numbers(redirect.Invalid), true)
	mark(packet.ConnMark, m.ConnMark)
	states := slices.DeleteFunc(slices.Clone(redirect.States),
		func(s redirect.State) bool { return m.State&s == 0 })
	ask(m.State != 0, packet.State, packet.Numbers(states...), false)
	return list
}

func ids(list redirect.IDs) packet.Set {
	ranges := make([]packet.Set, len(list))
	for i, r := range list {
		ranges[i] = packet.Range(r.First, r.Last)
	}
	return packet.Union(ranges...)
}

// Packet plays one packet.
func Packet(rs redirect.Ruleset, p packet.Packet) packet.Fate {
	class := p.Class()
	fate, _ := New(rs).Fate(class) // one packet leaves nothing open
	return fate.Known(class)
}

// Fate returns what becomes of the packets of a class, if it is the same for all of them, and else
// the first thing that it depends on.
func (r *Rules) Fate(c packet.Class) (packet.Fate, *packet.Question) {
	w := walk{rules: r, family: c.Family, hook: redirect.Prerouting, now: c,
		fate: packet.Fate{Outcome: packet.Passes}}
	for f := range w.from {
		w.from[f] = packet.Field(f)
	}
	if c.Leaves {
		w.hook = redirect.Output
		w.send()
	} else {
		w.enter(true)
	}
	w.fate.Mark, w.fate.ConnMark = w.mark(packet.PacketMark), w.mark(packet.ConnMark)
	return w.fate, w.question
}

func loopback(f redirect.Family) packet.Set {
	if f == redirect.IPv4 {
		return packet.Networks(netip.MustParsePrefix("127.0.0.1/32"))
	}
	return packet.Networks(netip.MustParsePrefix("::1/128"))
}
