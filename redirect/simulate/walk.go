package simulate

import (
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// walk is the way of a class of packets through the rules. It ends early, and what it holds then
// counts for nothing, once there is a question.
type walk struct {
	rules  *Rules
	family redirect.Family
	hook   redirect.Hook
	now    packet.Class // as the packets have become

	// The field of the packets at the start that a field has its values from; NoField: from a
	// rule, and then it is one value.
	from [packet.State + 1]packet.Field

	fate     packet.Fate
	question *packet.Question
}

// send plays the way out. What stays within the pod then enters it through lo.
func (w *walk) send() {
	w.pass(redirect.Raw)
	before, origin := w.now.Of(packet.PacketMark), w.from[packet.PacketMark]
	w.pass(redirect.Mangle)
	if w.from[packet.PacketMark] != origin || origin == packet.NoField {
		w.reroute(before, origin)
	}
	w.nat() // still sees the interface of the first routing decision
	if w.fate.Outcome == packet.Redirected {
		w.fate.Local = true
		w.set(packet.Destination, loopback(w.family))
		w.set(packet.DestinationPort, packet.Numbers(w.fate.Port))
	}
	lo := packet.Names("lo")
	if w.fate.Outcome != packet.Dropped && (w.fate.Local || w.is(packet.Interface, lo)) {
		w.fate.Local = true
		w.set(packet.Interface, lo)
		w.set(packet.Socket, packet.Range(0, 0))
		w.hook = redirect.Prerouting
		w.enter(false)
	}
}

// reroute asks the routing policy once more, as the kernel does if the mark is another one behind
// mangle.
func (w *walk) reroute(before packet.Set, origin packet.Field) {
	if !w.is(packet.PacketMark, w.rules.routed) {
		return
	}
	mark := w.now.Of(packet.PacketMark)
	if !mark.Single() { // of several marks that are routed
		first := mark.Spans()[0].First
		w.is(packet.PacketMark, packet.Numbers(first.Number()))
		return
	}
	in, out := before.Meets(mark)
	if in && out {
		w.ask(origin, mark)
	}
	w.fate.Local = out
}

// enter plays the way in. A connection that began within the pod has had its turn at nat on the way
// out.
func (w *walk) enter(nat bool) {
	w.pass(redirect.Raw)
	w.pass(redirect.Mangle)
	if nat && w.fate.Outcome == packet.Passes {
		w.nat()
	}
}

// nat is asked about the first packet of a connection; the others follow it.
func (w *walk) nat() {
	if w.is(packet.State, packet.Numbers(redirect.New, redirect.Related)) {
		w.pass(redirect.NAT)
	}
}

// pass plays one table at the hook.
func (w *walk) pass(t redirect.Table) {
	c, ok := w.rules.chains[place{w.family, t, w.hook.String()}]
	if ok && w.fate.Outcome != packet.Dropped && w.question == nil {
		w.chain(c)
	}
}

// chain tries the rules from the top; done says that the way through the table is at its end.
func (w *walk) chain(c *chain) (done bool) {
	for i := range c.rules {
		r := &c.rules[i]
		if r.hook != redirect.NoHook && r.hook != w.hook || !w.meets(r) {
			if w.question != nil {
				return true
			}
			continue
		}
		w.fate.Met = append(w.fate.Met, r.met)
		switch r.then.Verb {
		case redirect.Return:
			return false
		case redirect.Jump:
			done = w.chain(r.to)
		default:
			done = w.act(r.then)
		}
		if done {
			return true
		}
	}
	return false
}

func (w *walk) meets(r *rule) bool {
	for i := range r.conditions {
		c := &r.conditions[i]
		if in := w.is(c.field, c.set); w.question != nil || in == c.not {
			return false
		}
	}
	return true
}

// is reports whether a field's value is in set, if that is so for all packets or for none; else it
// asks.
func (w *walk) is(f packet.Field, set packet.Set) bool {
	in, out := w.now.Of(f).Meets(set)
	if in && out {
		w.ask(w.from[f], set)
	}
	return in && !out
}

func (w *walk) ask(f packet.Field, set packet.Set) {
	if w.question == nil {
		w.question = &packet.Question{Field: f, Set: set}
	}
}

func (w *walk) set(f packet.Field, to packet.Set) {
	w.now, w.from[f] = w.now.With(f, to), packet.NoField
}

// copy copies a mark. An invalid packet has no connection, and so neither gets nor gives one.
func (w *walk) copy(f, from packet.Field) {
	if w.is(packet.State, packet.Numbers(redirect.Invalid)) {
		return
	}
	w.now, w.from[f] = w.now.With(f, w.now.Of(from)), w.from[from]
}

func (w *walk) act(a redirect.Action) (done bool) {
	switch a.Verb {
	case redirect.Drop:
		w.fate.Outcome = packet.Dropped
	case redirect.Redirect:
		w.fate.Outcome, w.fate.Port = packet.Redirected, a.Port
	case redirect.TProxy:
		w.fate.Outcome, w.fate.Port = packet.Handed, a.Port
		w.set(packet.PacketMark, packet.Numbers(a.Mark))
	case redirect.SetMark:
		w.set(packet.PacketMark, packet.Numbers(a.Mark))
		return false
	case redirect.SaveMark:
		w.copy(packet.ConnMark, packet.PacketMark)
		return false
	case redirect.RestoreMark:
		w.copy(packet.PacketMark, packet.ConnMark)
		return false
	case redirect.SetZone:
		if w.fate.Zone == 0 && !w.fate.Local { // over lo it is tracked already
			w.fate.Zone = a.Zone
		}
		return false
	case redirect.Return, redirect.Accept, redirect.Jump:
	}
	return true
}

// mark is a mark as it has become.
func (w *walk) mark(f packet.Field) packet.Mark {
	if w.from[f] == packet.NoField {
		return packet.Mark{Value: w.now.Of(f).Spans()[0].First.Number()}
	}
	return packet.Mark{From: w.from[f]}
}
