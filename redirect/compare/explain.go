package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Words are what sentences about differences are made of, beside the differences.
type Words struct {
	A, B  string            // the sides, such as istio-init and sidecar-cni
	Proxy redirect.Identity // whose packets are called the proxy's
}

// Explain says each difference in a sentence, one a line. What is so in both families is said once.
// What no kernel would see is counted only, and so is what is on purpose beyond a few for a reason.
func Explain(differences []Difference, w Words) string {
	if len(differences) == 0 {
		return "No packet is treated differently.\n"
	}
	possible := slices.DeleteFunc(slices.Clone(differences),
		func(d Difference) bool { return !occurs(d.Class) })
	families := map[string]int{}
	for _, d := range possible {
		families[w.sentence(d, false)]++
	}
	const few = 3
	said, more := map[string]int{}, []string{}
	var b strings.Builder
	for _, d := range possible {
		text := w.sentence(d, false)
		alone := families[text] == 1
		if families[text] == 0 { // said already
			continue
		}
		families[text] = 0
		switch said[d.Reason]++; {
		case d.Reason == "" || said[d.Reason] <= few:
			fmt.Fprintln(&b, w.sentence(d, alone))
		case said[d.Reason] == few+1:
			more = append(more, d.Reason)
		}
	}
	for _, reason := range more {
		fmt.Fprintf(&b, "%d more, since %s.\n", said[reason]-few, reason)
	}
	if n := len(differences) - len(possible); n > 0 {
		fmt.Fprintf(&b, "%d more would take marks on packets that have none yet.\n", n)
	}
	return b.String()
}

// occurs reports whether a kernel may see packets of a class. What enters a network namespace has
// no mark, and neither has a connection that begins.
func occurs(c packet.Class) bool {
	known, _ := packet.Numbers(redirect.Established, redirect.Related).Meets(c.Of(packet.State))
	return (c.Leaves || unmarked(c, packet.PacketMark)) &&
		(known || unmarked(c, packet.ConnMark))
}

// Connections parts differences: first those that say where connections go, and those on purpose,
// of which Explain says a few; then those about marks and zones alone, about packets that have a
// mark already, and about packets that begin no connection, unless they are dropped.
func Connections(differences []Difference) (first, rest []Difference) {
	for _, d := range differences {
		if d.Reason != "" || begins(d) && (verb(d.A) != verb(d.B) || d.A.Local != d.B.Local) {
			first = append(first, d)
		} else {
			rest = append(rest, d)
		}
	}
	return first, rest
}

// begins reports whether a socket's packets are among those that differ, or what enters, that begin
// a connection; or whether there is none on one side, which drops them.
func begins(d Difference) bool {
	state, _ := packet.Numbers(redirect.New).Meets(d.Class.Of(packet.State))
	_, socket := d.Class.Of(packet.Socket).Meets(packet.Range(0, 0))
	return unmarked(d.Class, packet.PacketMark) && unmarked(d.Class, packet.ConnMark) &&
		(socket || !d.Class.Leaves) &&
		(state || d.A.Outcome == packet.Dropped || d.B.Outcome == packet.Dropped)
}

func unmarked(c packet.Class, f packet.Field) bool {
	in, _ := packet.Range(0, 0).Meets(c.Of(f))
	return in
}

// sentence says which packets differ, what becomes of them on either side, and why.
func (w Words) sentence(d Difference, withFamily bool) string {
	subject, shown := packet.Describe(d.Class, w.Proxy)
	if withFamily && !shown {
		subject += " over " + d.Class.Family.String()
	}
	a, b := verb(d.A), verb(d.B)
	if a == b {
		a, b = a+rest(d.A, d.B), b+rest(d.B, d.A)
	}
	why := cmp.Or(d.Reason, reason(d.B, d.A), "no rule of "+w.B+" is about it")
	return fmt.Sprintf("%s: %s %s, %s %s: %s.", subject, w.A, a, w.B, b, why)
}

// verb says what a side does with the packets.
func verb(f packet.Fate) string {
	switch f.Outcome {
	case packet.Redirected:
		return fmt.Sprintf("redirects it to %d", f.Port)
	case packet.Handed:
		return fmt.Sprintf("hands it to %d", f.Port)
	case packet.Dropped:
		return "drops it"
	case packet.Passes:
	}
	return "lets it pass"
}

// rest says in what else a fate differs from another.
func rest(f, other packet.Fate) string {
	var words []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(f.Local && !other.Local, "within the pod")
	add(!f.Local && other.Local, "out of the pod")
	add(f.Mark != other.Mark, "with %s", f.Mark)
	add(f.ConnMark != other.ConnMark, "in a connection with %s", f.ConnMark)
	add(f.Zone != other.Zone, "in zone %d", f.Zone)
	return " " + strings.Join(words, ", ")
}

// reason says why a side does what it does, by the last rule that decided: of a redirection, which
// all end in the same rule, the jump that led there.
func reason(f, other packet.Fate) string {
	table := deciding(f, other)
	met := slices.DeleteFunc(slices.Clone(f.Met),
		func(m packet.Met) bool { return m.Table != table })
	last := len(met) - 1
	if last < 0 {
		return ""
	}
	if f.Port != 0 && last > 0 && met[last].Chain != met[last-1].Chain {
		last--
	}
	rule, ours := met[last].Rule.(redirect.Rule)
	switch {
	case !ours:
		return met[last].Rule.String() // a line of a listing
	case rule.Then.Verb == redirect.Jump && f.Outcome == packet.Passes:
		return "" // nothing matched where it led
	}
	return rule.Why
}

// deciding returns the table in which a side does what it does, or else what the other does.
func deciding(f, other packet.Fate) redirect.Table {
	switch {
	case f.Outcome == other.Outcome && f.Zone != other.Zone:
		return redirect.Raw
	case f.Outcome == packet.Redirected, f.Outcome == packet.Passes &&
		other.Outcome == packet.Redirected && f.Mark.From == packet.PacketMark:
		return redirect.NAT
	case f.Outcome == packet.Dropped && len(f.Met) > 0:
		return f.Met[len(f.Met)-1].Table
	}
	return redirect.Mangle
}
