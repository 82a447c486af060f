package packet

import "slices"

// Side is a set of rules.
type Side interface {
	// Fate returns what becomes of the packets of a class, if it is the same for all of them;
	// else it asks the first question on which it depends.
	Fate(class Class) (Fate, *Question)
}

// Part is a class of packets that rules do not tell apart.
type Part struct {
	Class Class // what the rules could ask about it is settled
	Fate  Fate  // of each packet
}

// Partition splits classes until a side has one fate for each part.
func Partition(side Side, classes []Class) []Part {
	var done []Part
	classes = slices.Clone(classes)
	for len(classes) > 0 {
		class := classes[len(classes)-1]
		classes = classes[:len(classes)-1]
		fate, question := side.Fate(class)
		if question == nil {
			done = append(done, Part{class, fate})
			continue
		}
		in, out := class.Split(*question)
		classes = append(classes, out, in)
	}
	return done
}

// Known replaces marks that are kept by their number, if a class has but one.
func (f Fate) Known(c Class) Fate {
	f.Mark, f.ConnMark = f.Mark.In(c), f.ConnMark.In(c)
	return f
}

// Kept is the other way around: a mark that is set to the number that all packets of a class have
// had is not changed.
func (f Fate) Kept(c Class) Fate {
	if own := (Mark{From: PacketMark}); own.In(c) == f.Mark {
		f.Mark = own
	}
	if own := (Mark{From: ConnMark}); own.In(c) == f.ConnMark {
		f.ConnMark = own
	}
	return f
}
