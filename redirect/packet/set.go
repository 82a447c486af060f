package packet

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"sort"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Value is what one field of a packet holds, whichever field it is: a number, an address or an
// interface's name, as a number of 128 bits.
type Value struct{ high, low uint64 }

// Span is the values from First to Last, both included.
type Span struct {
	First, Last Value // First is not above Last
}

// Set is a set of values of one field. The zero Set is empty.
type Set struct{ spans []Span } // sorted, with a gap between neighbours

// Numbers returns the set of some numbers: ports, ids, marks, protocols or states.
func Numbers[N ~uint8 | ~uint16 | ~uint32](numbers ...N) Set {
	spans := make([]Span, len(numbers))
	for i, n := range numbers {
		spans[i] = Span{Value{low: uint64(n)}, Value{low: uint64(n)}}
	}
	return setOf(spans)
}

// Range returns the set of the numbers from first to last, both included.
func Range(first, last uint32) Set {
	return Set{[]Span{{Value{low: uint64(first)}, Value{low: uint64(last)}}}}
}

// Networks returns the set of the addresses of networks, which are of one family.
func Networks(prefixes ...netip.Prefix) Set {
	spans := make([]Span, len(prefixes))
	for i, p := range prefixes {
		first := addrValue(p.Masked().Addr())
		last := first
		switch host := p.Addr().BitLen() - p.Bits(); {
		case host >= 64:
			last.low = math.MaxUint64
			last.high |= 1<<(host-64) - 1
		default:
			last.low |= 1<<host - 1
		}
		spans[i] = Span{first, last}
	}
	return setOf(spans)
}

// Names returns the set of the names that an interface's name in a rule stands for.
func Names(i redirect.Interface) Set {
	first := nameValue(string(i), 0)
	last := first
	if n := len(i) - 1; n >= 0 && i[n] == '+' {
		first, last = nameValue(string(i[:n]), 0), nameValue(string(i[:n]), 0xff)
	}
	return Set{[]Span{{first, last}}}
}

func addrValue(a netip.Addr) Value {
	if a.Is4() {
		four := a.As4()
		return Value{low: uint64(binary.BigEndian.Uint32(four[:]))}
	}
	bytes := a.As16()
	return Value{binary.BigEndian.Uint64(bytes[:8]), binary.BigEndian.Uint64(bytes[8:])}
}

// nameValue is a name with fill behind it: names sort as their values do.
func nameValue(name string, fill byte) Value {
	var bytes [16]byte
	for i := range bytes {
		bytes[i] = fill
	}
	copy(bytes[:], name)
	return Value{binary.BigEndian.Uint64(bytes[:8]), binary.BigEndian.Uint64(bytes[8:])}
}

// Number returns the value of a field that holds numbers.
func (v Value) Number() uint32 { return uint32(v.low) }

// Addr returns the value of a field that holds addresses of that family.
func (v Value) Addr(f redirect.Family) netip.Addr {
	if f == redirect.IPv4 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(v.low))))
	}
	bytes := v.Append(nil)
	return netip.AddrFrom16([16]byte(bytes))
}

// name returns a name of the span that an interface can have.
func (s Span) name() string {
	stem := s.First.Name()
	for _, end := range []string{"", "0", "1", "a", "z", "_"} {
		v := nameValue(stem+end, 0)
		if !v.less(s.First) && !s.Last.less(v) {
			return stem + end
		}
	}
	return stem
}

// Append appends the value to bytes, as 16 of them.
func (v Value) Append(bytes []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(bytes, v.high), v.low)
}

// Name returns the value of a field that holds names of interfaces.
func (v Value) Name() string {
	bytes := v.Append(nil)
	if end := slices.Index(bytes, 0); end >= 0 {
		bytes = bytes[:end]
	}
	return string(bytes)
}

func (v Value) less(w Value) bool { return v.high < w.high || v.high == w.high && v.low < w.low }

// next is 0 behind the highest value.
func (v Value) next() Value {
	v.low++
	if v.low == 0 {
		v.high++
	}
	return v
}

func (v Value) previous() Value {
	if v.low == 0 {
		v.high--
	}
	v.low--
	return v
}

// setOf sorts spans and joins those that overlap or touch.
func setOf(spans []Span) Set {
	slices.SortFunc(spans, func(a, b Span) int {
		switch {
		case a.First.less(b.First):
			return -1
		case b.First.less(a.First):
			return 1
		}
		return 0
	})
	var out []Span
	for _, s := range spans {
		n := len(out) - 1
		if n < 0 || out[n].Last.less(s.First) && out[n].Last.next() != s.First {
			out = append(out, s)
		} else if out[n].Last.less(s.Last) {
			out[n].Last = s.Last
		}
	}
	return Set{out}
}

// Empty reports whether no value is in the set.
func (s Set) Empty() bool { return len(s.spans) == 0 }

// Spans returns the set as spans in order, with a gap between neighbours.
func (s Set) Spans() []Span { return s.spans }

// Equal reports whether both sets have the same values.
func (s Set) Equal(t Set) bool { return slices.Equal(s.spans, t.spans) }

// Has reports whether a value is in the set.
func (s Set) Has(v Value) bool {
	i := s.from(v)
	return i < len(s.spans) && !v.less(s.spans[i].First)
}

// from returns the place of the first span that does not end before v.
func (s Set) from(v Value) int {
	return sort.Search(len(s.spans), func(i int) bool { return !s.spans[i].Last.less(v) })
}

// Union returns the values that are in one of the sets.
func Union(sets ...Set) Set {
	var spans []Span
	for _, s := range sets {
		spans = append(spans, s.spans...)
	}
	return setOf(spans)
}

// And returns the values that are in both sets.
func (s Set) And(t Set) Set {
	var out []Span
	s.overlaps(t, func(o Span) bool {
		out = append(out, o)
		return true
	})
	return Set{out}
}

// Without returns the values that are in s and not in t.
func (s Set) Without(t Set) Set {
	out := make([]Span, 0, len(s.spans)+len(t.spans))
	for _, span := range s.spans {
		rest, ended := span, false
		for i := t.from(span.First); i < len(t.spans) && !span.Last.less(t.spans[i].First); i++ {
			hole := t.spans[i]
			if rest.First.less(hole.First) {
				out = append(out, Span{rest.First, hole.First.previous()})
			}
			if ended = !hole.Last.less(span.Last); ended {
				break
			}
			rest.First = hole.Last.next()
		}
		if !ended {
			out = append(out, rest)
		}
	}
	return Set{out}
}

// Meets reports whether some values of s are in t, and whether some are not.
func (s Set) Meets(t Set) (in, out bool) {
	if len(s.spans) == 0 {
		return false, false
	}
	next := s.spans[0].First // the lowest value of s that no overlap has covered so far
	at := 0
	s.overlaps(t, func(o Span) bool {
		in = true
		out = out || o.First != next
		if next = o.Last.next(); o.Last == s.spans[at].Last {
			if at++; at < len(s.spans) {
				next = s.spans[at].First
			}
		}
		return !out
	})
	return in, out || at < len(s.spans)
}

// overlaps calls f with each span that is in both sets, in order, until it returns false.
func (s Set) overlaps(t Set, f func(Span) bool) {
	if len(s.spans) == 0 || len(t.spans) == 0 {
		return
	}
	i, j := s.from(t.spans[0].First), t.from(s.spans[0].First)
	for i < len(s.spans) && j < len(t.spans) {
		a, b := s.spans[i], t.spans[j]
		both := Span{a.First, a.Last}
		if a.First.less(b.First) {
			both.First = b.First
		}
		if b.Last.less(a.Last) {
			both.Last = b.Last
		}
		if !both.Last.less(both.First) && !f(both) {
			return
		}
		if a.Last.less(b.Last) {
			i++
		} else {
			j++
		}
	}
}

// Magnitude is how many values a set has, by the number of bits that it takes to count them, and 1.
func (s Set) Magnitude() float64 {
	n := 1.0
	for _, span := range s.spans {
		low := float64(span.Last.low) - float64(span.First.low)
		n += float64(span.Last.high-span.First.high)*(1<<64) + low + 1
	}
	return 1 + math.Log2(n)
}

// Single reports whether exactly one value is in the set.
func (s Set) Single() bool { return len(s.spans) == 1 && s.spans[0].First == s.spans[0].Last }
