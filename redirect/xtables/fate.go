package xtables

import (
	"net/netip"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

var (
	begins   = packet.Numbers(redirect.New, redirect.Related)
	invalid  = packet.Numbers(redirect.Invalid)
	loopback = map[redirect.Family]packet.Set{
		redirect.IPv4: packet.Networks(netip.MustParsePrefix("127.0.0.1/32")),
		redirect.IPv6: packet.Networks(netip.MustParsePrefix("::1/128")),
	}
)

// Fate says what becomes of the packets of a class. Without a question it is the fate of each of
// them; with one, they differ, and the class must be split there.
func (t *Tables) Fate(c packet.Class) (packet.Fate, *packet.Question) {
	w := &walk{tables: t, family: c.Family, fate: packet.Fate{Outcome: packet.Passes}}
	for _, f := range packet.Fields {
		w.now[f] = value{f, c.Of(f)}
	}
	w.now[out] = value{set: packet.Names("")}
	if c.Leaves {
		w.now[in], w.now[out] = w.now[out], w.now[in]
		w.leave()
	} else {
		w.pass(redirect.Prerouting, redirect.Tables...)
	}
	if w.question != nil {
		return packet.Fate{}, w.question
	}
	w.fate.Mark, w.fate.ConnMark = w.now[packet.PacketMark].mark(), w.now[packet.ConnMark].mark()
	return w.fate, nil
}

// walk is a class of packets on its way, which ends with a question or where the packets end.
type walk struct {
	tables   *Tables
	family   redirect.Family
	now      [out + 1]value // by field
	decided  bool           // there is nothing more to do in this table
	fate     packet.Fate
	question *packet.Question
}

// value is what a field has by now.
type value struct {
	from packet.Field // at the start, where it has its value from; NoField: from a rule
	set  packet.Set   // with NoField one value
}

func (v value) mark() packet.Mark {
	if v.set.Single() {
		return packet.Mark{Value: v.set.Spans()[0].First.Number()}
	}
	return packet.Mark{From: v.from}
}

// is reports whether a value is in the set. If only those of some packets are, the walk ends.
func (w *walk) is(v value, s packet.Set) bool {
	some, others := v.set.Meets(s)
	if some && others && w.question == nil {
		w.question = &packet.Question{Field: v.from, Set: s}
	}
	w.decided = w.decided || some && others
	return some && !others
}

// leave passes OUTPUT. What stays in the pod then comes in through lo, and has no socket any more.
func (w *walk) leave() {
	w.pass(redirect.Output, redirect.Raw)
	before := w.now[packet.PacketMark]
	w.pass(redirect.Output, redirect.Mangle)
	after := w.now[packet.PacketMark]
	w.pass(redirect.Output, redirect.NAT)
	if w.fate.Local = !w.ended() && w.stays(before, after); w.fate.Local {
		w.now[in], w.now[out] = value{set: packet.Names("lo")}, value{set: packet.Names("")}
		w.now[packet.Socket] = value{set: packet.Range(0, 0)}
		// nat has decided about the connection, and is not asked again
		w.pass(redirect.Prerouting, redirect.Raw, redirect.Mangle)
	}
}

// stays reports whether what OUTPUT let go leaves through lo. The kernel looks for a route again if
// mangle has changed the mark.
func (w *walk) stays(before, after value) bool {
	if w.fate.Outcome == packet.Redirected || w.is(w.now[out], packet.Names("lo")) {
		return true
	}
	for _, m := range w.tables.Routed {
		mark := packet.Numbers(m)
		if after.from != packet.PacketMark && w.is(after, mark) {
			return !w.is(before, mark)
		}
	}
	return false
}

func (w *walk) ended() bool {
	return w.question != nil || w.fate.Outcome == packet.Dropped || w.fate.Outcome == packet.Handed
}

// pass passes tables at a hook. nat is asked for what may begin a connection only.
func (w *walk) pass(h redirect.Hook, tables ...redirect.Table) {
	for _, table := range tables {
		c := w.tables.chains[place{w.family, table.String(), h.String()}]
		if w.ended() || c == nil || len(c.rules) == 0 && !c.drops {
			continue
		}
		w.decided = false
		if table != redirect.NAT || w.is(w.now[packet.State], begins) {
			w.chain(c)
		}
	}
}

// chain tries the rules of a chain.
func (w *walk) chain(c *chain) {
	for i := 0; i < len(c.rules) && !w.decided; i++ {
		r := c.rules[i]
		if !w.matches(r) {
			continue
		}
		met := packet.Met{Table: c.table, Chain: c.name, Index: i, Rule: r}
		w.fate.Met = append(w.fate.Met, met)
		if r.verb == redirect.Return {
			break
		}
		w.do(r)
	}
	if c.drops && !w.decided {
		w.fate.Outcome, w.decided = packet.Dropped, true
	}
}

// matches knows that without a socket there is no owner, which meets what is negated, and that an
// invalid packet has no connection, whose mark meets nothing.
func (w *walk) matches(r *rule) bool {
	for _, c := range r.conditions {
		owner := c.field == packet.UID || c.field == packet.GID
		held := (!owner || w.is(w.now[packet.Socket], packet.Range(1, 1))) &&
			w.is(w.now[c.field], c.set)
		if held == c.not || c.field == packet.ConnMark && w.is(w.now[packet.State], invalid) {
			return false
		}
	}
	return true
}

// final are the verbs that end the way through a table.
var final = []redirect.Verb{redirect.Accept, redirect.Drop, redirect.Redirect, redirect.TProxy}

// do does what a rule says with the packets that match it.
func (w *walk) do(r *rule) {
	if r.mark != nil { // of MARK or TPROXY
		w.now[packet.PacketMark] = value{set: packet.Numbers(*r.mark)}
	}
	switch r.verb {
	case redirect.Jump:
		w.chain(r.chain)
	case redirect.Drop:
		w.fate.Outcome = packet.Dropped
	case redirect.Redirect:
		w.fate.Outcome, w.fate.Port = packet.Redirected, r.number
		// in PREROUTING it is an address of the interface, and nothing asks for it any more
		w.now[packet.Destination] = value{set: loopback[w.family]}
		w.now[packet.DestinationPort] = value{set: packet.Numbers(r.number)}
	case redirect.TProxy:
		w.fate.Outcome, w.fate.Port = packet.Handed, r.number
	case redirect.SaveMark:
		w.copyMark(packet.ConnMark, packet.PacketMark)
	case redirect.RestoreMark:
		w.copyMark(packet.PacketMark, packet.ConnMark)
	case redirect.SetZone:
		if w.fate.Zone == 0 && !w.fate.Local { // else it is tracked already
			w.fate.Zone = r.number
		}
	case redirect.Return, redirect.Accept, redirect.SetMark:
	}
	w.decided = w.decided || slices.Contains(final, r.verb)
}

func (w *walk) copyMark(to, from packet.Field) {
	if !w.is(w.now[packet.State], invalid) {
		w.now[to] = w.now[from]
	}
}
