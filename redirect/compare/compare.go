// Package compare says for which packets two sets of rules differ. The answer is complete: where
// it names nothing, every packet has the same fate on both sides.
//
//	differences := compare.Compare(istioInit, simulate.New(rules))
//	fmt.Print(compare.Explain(differences, words))
//
// A rule asks of a packet only on which side of some constant a field is. So packets are handled by
// the class: it is split where a rule asks, and nowhere else, until each side has one fate for all
// of its packets.
//
// Be aware: a fate is that of one packet, as package simulate has it. Packets that no kernel would
// see, such as the first of a connection that already has a mark, are compared like all others.
package compare

import (
	"cmp"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// Difference is a class of packets whose fates differ.
type Difference struct {
	Class   packet.Class  // all packets that the two sides treat so
	A, B    packet.Fate   // of each packet of Class; Met is that of Example
	Example packet.Packet // one of Class, as usual as it can be
	Reason  string        // why it is on purpose, see Separate; else empty
}

// Compare returns where the fates of all packets differ, the most traffic first.
func Compare(a, b packet.Side) []Difference { return Within(packet.Everything(), a, b) }

// Within returns where the fates of the packets of some classes differ.
func Within(classes []packet.Class, a, b packet.Side) []Difference {
	var found []outcome
	for _, one := range merge(partition(a, classes)) {
		for _, other := range partition(b, []packet.Class{one.class}) {
			found = append(found, different(outcome{other.class, one.b, other.b})...)
		}
	}
	var differences []Difference
	for _, o := range merge(found) {
		d := Difference{Class: o.class, A: o.a, B: o.b, Example: example(o)}
		fateA, _ := a.Fate(d.Example.Class())
		fateB, _ := b.Fate(d.Example.Class())
		d.A.Met, d.B.Met = fateA.Met, fateB.Met
		differences = append(differences, d)
	}
	slices.SortStableFunc(differences, func(a, b Difference) int {
		return cmp.Compare(b.Class.Traffic(), a.Class.Traffic())
	})
	return differences
}

// outcome is a class with its fate on either side; a is not known in the beginning.
type outcome struct {
	class packet.Class
	a, b  packet.Fate
}

func partition(side packet.Side, classes []packet.Class) []outcome {
	parts := packet.Partition(side, classes)
	outcomes := make([]outcome, len(parts))
	for i, p := range parts {
		outcomes[i] = outcome{class: p.Class, b: p.Fate.Kept(p.Class)}
	}
	return outcomes
}

// different returns the parts of a class for which the two fates differ.
func different(o outcome) []outcome {
	a, b := o.a.Known(o.class), o.b.Known(o.class)
	switch {
	case a.Outcome != b.Outcome || a.Port != b.Port:
		return []outcome{o}
	case a.Outcome == packet.Dropped: // what it has on it does not matter any more
		return nil
	case a.Zone != b.Zone || a.Local != b.Local:
		return []outcome{o}
	}
	for _, marks := range [][2]packet.Mark{{a.Mark, b.Mark}, {a.ConnMark, b.ConnMark}} {
		if marks[0] == marks[1] {
			continue
		}
		question := where(o.class, marks[0], marks[1])
		if question == nil {
			return []outcome{o}
		}
		rest := o
		o.class, rest.class = o.class.Split(*question)
		return append(different(o), different(rest)...)
	}
	return nil
}

// where asks for the packets of which one mark, kept since the start, is the number that the other
// is set to. There is nothing to ask if none of the packets has it.
func where(c packet.Class, a, b packet.Mark) *packet.Question {
	if b.From != packet.NoField {
		a, b = b, a
	}
	if a.From == packet.NoField || b.From != packet.NoField {
		return nil
	}
	set := packet.Numbers(b.Value)
	if in, _ := c.Of(a.From).Meets(set); !in {
		return nil
	}
	return &packet.Question{Field: a.From, Set: set}
}

// example returns a packet whose fates differ. Where they differ by which of two marks is kept, the
// marks must not be equal.
func example(o outcome) packet.Packet {
	p := o.class.Example()
	other := o.class.Of(packet.ConnMark).Without(packet.Numbers(p.Mark))
	if (o.a.Mark != o.b.Mark || o.a.ConnMark != o.b.ConnMark) && !other.Empty() {
		return o.class.With(packet.ConnMark, other).Example()
	}
	return p
}
