package xtables

import (
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Fate says what becomes of the packets of a class. Without a question it is the fate of each of
// them; with one, they differ, and the class must be split there.
func (t *Tables) Fate(c packet.Class) (packet.Fate, *packet.Question) {
	w := start(c)
	if !c.Leaves {
		t.hook(w, redirect.Prerouting, redirect.Tables)
	} else if t.hook(w, redirect.Output, redirect.Tables) && t.local(w) {
		w.arriveByLo()
		// nat has decided about the connection, and is not asked again
		t.hook(w, redirect.Prerouting, redirect.Tables[:2])
	}
	if w.question != nil {
		return packet.Fate{}, w.question
	}
	w.fate.Mark, w.fate.ConnMark = w.now[packet.PacketMark].mark(), w.now[packet.ConnMark].mark()
	return w.fate, nil
}

// walk is a class of packets on its way.
type walk struct {
	family   redirect.Family
	now      [out + 1]value // by field
	before   value          // the mark in front of the last mangle
	after    value          // and behind it
	zoned    bool           // connection tracking knows it, or was told a zone
	fate     packet.Fate
	question *packet.Question // the walk has ended here
}

// value is what a field has by now.
type value struct {
	from packet.Field // at the start, where it has its value from; NoField: from a rule
	set  packet.Set   // with NoField one value
}

func (v value) mark() packet.Mark {
	spans := v.set.Spans()
	if len(spans) != 1 || spans[0].First != spans[0].Last {
		return packet.Mark{From: v.from}
	}
	return packet.Mark{Value: spans[0].First.Number()}
}

func start(c packet.Class) *walk {
	w := &walk{family: c.Family, fate: packet.Fate{Outcome: packet.Passes}}
	for _, f := range packet.Fields {
		w.now[f] = value{f, c.Of(f)}
	}
	w.now[out] = value{set: packet.Names("")}
	if c.Leaves {
		w.now[in], w.now[out] = w.now[out], w.now[in]
	}
	return w
}

// arriveByLo has the packet come in again. It has no socket then, but no rule can ask there.
func (w *walk) arriveByLo() {
	w.fate.Local, w.zoned = true, true
	w.now[in], w.now[out] = value{set: packet.Names("lo")}, value{set: packet.Names("")}
}

// is reports whether the field is in the set. If only some of the packets have it there, the walk
// ends with a question.
func (w *walk) is(f packet.Field, s packet.Set) bool { return w.has(w.now[f], s) }

func (w *walk) has(v value, s packet.Set) bool {
	some, others := v.set.Meets(s)
	if some && others && w.question == nil {
		w.question = &packet.Question{Field: v.from, Set: s}
	}
	return some && !others
}

// hook passes the tables at a hook, and reports whether the packet is to go on.
func (t *Tables) hook(w *walk, h redirect.Hook, tables []redirect.Table) bool {
	for _, table := range tables {
		c := t.hooks[place{w.family, table, h}]
		before := w.now[packet.PacketMark]
		if w.enters(c) && w.chain(c) == ends {
			return false
		}
		if table == redirect.Mangle {
			w.before, w.after = before, w.now[packet.PacketMark]
		}
	}
	return w.question == nil
}

// enters knows that nat is asked for what may begin a connection only.
func (w *walk) enters(c *chain) bool {
	return c != nil && (len(c.rules) > 0 || c.drops) && (c.table != redirect.NAT ||
		w.is(packet.State, packet.Numbers(redirect.New, redirect.Related)))
}

// local reports whether what OUTPUT let go leaves through lo. The kernel looks for a route again if
// mangle has changed the mark.
func (t *Tables) local(w *walk) bool {
	if w.fate.Outcome == packet.Redirected || w.is(out, packet.Names("lo")) {
		return true
	}
	if w.before.from == w.after.from && w.before.set.Equal(w.after.set) {
		return false
	}
	for _, m := range t.Routed {
		if mark := packet.Numbers(m); w.has(w.after, mark) {
			return !w.has(w.before, mark) && w.question == nil
		}
	}
	return false
}

// verdict is how packets leave a rule or a chain.
type verdict uint8

const (
	goesOn verdict = iota
	returns
	accepted // by this table
	ends     // the way of the packets, or the walk with a question
)

// chain tries the rules of a chain.
func (w *walk) chain(c *chain) verdict {
	v := goesOn
	for i := 0; i < len(c.rules) && v == goesOn; i++ {
		r := c.rules[i]
		if w.matches(r) {
			w.fate.Met = append(w.fate.Met,
				packet.Met{Table: c.table, Chain: c.name, Index: i, Rule: r.text})
			v = w.do(r)
		}
		if w.question != nil {
			return ends
		}
	}
	switch {
	case v == accepted || v == ends:
		return v
	case c.drops:
		w.fate.Outcome = packet.Dropped
		return ends
	}
	return goesOn
}

// matches reports whether all conditions hold. A question ends the walk.
func (w *walk) matches(r *rule) bool {
	for _, either := range r.conditions {
		held := false
		for i := 0; i < len(either) && !held; i++ {
			held = w.is(either[i].field, either[i].set) != either[i].not || w.question != nil
		}
		if !held || w.question != nil {
			return false
		}
	}
	return true
}

// do does what a rule says with the packets that match it.
func (w *walk) do(r *rule) verdict {
	switch r.verb {
	case redirect.Return:
		return returns
	case redirect.Accept:
		return accepted
	case redirect.Drop:
		w.fate.Outcome = packet.Dropped
		return ends
	case redirect.Jump:
		return w.chain(r.chain)
	case redirect.Redirect:
		w.redirect(r.port)
		return accepted
	case redirect.TProxy:
		w.fate.Outcome, w.fate.Port = packet.Handed, r.port
		w.setMark(r)
		return ends
	case redirect.SetMark:
		w.setMark(r)
	case redirect.SaveMark:
		w.copyMark(packet.ConnMark, packet.PacketMark)
	case redirect.RestoreMark:
		w.copyMark(packet.PacketMark, packet.ConnMark)
	case redirect.SetZone:
		if !w.zoned {
			w.zoned, w.fate.Zone = true, r.zone
		}
	}
	return goesOn
}

// redirect rewrites the destination to where REDIRECT in OUTPUT sends packets. In PREROUTING it is
// an address of the interface, and nothing asks for it any more.
func (w *walk) redirect(port uint16) {
	w.fate.Outcome, w.fate.Port = packet.Redirected, port
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if w.family == redirect.IPv6 {
		loopback = netip.IPv6Loopback()
	}
	w.now[packet.Destination] = value{
		set: packet.Networks(netip.PrefixFrom(loopback, loopback.BitLen()))}
	w.now[packet.DestinationPort] = value{set: packet.Numbers(port)}
}

func (w *walk) setMark(r *rule) {
	if r.mark != nil {
		w.now[packet.PacketMark] = value{set: packet.Numbers(*r.mark)}
	}
}

// copyMark copies a mark, unless the packet is invalid and so has no connection.
func (w *walk) copyMark(to, from packet.Field) {
	if !w.is(packet.State, packet.Numbers(redirect.Invalid)) {
		w.now[to] = w.now[from]
	}
}
