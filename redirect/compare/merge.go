package compare

import (
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// merge joins classes of the same fates that differ in the values of one field only, until there
// are none left. What is joined had been split by a rule that came to nothing.
func merge(outcomes []outcome) []outcome {
	m := merger{sets: map[string]int32{}, fates: map[fates]int32{}}
	keys := make([]key, len(outcomes))
	for i, o := range outcomes {
		keys[i] = m.keyOf(o)
	}
	for before := -1; before != len(outcomes); {
		before = len(outcomes)
		for _, f := range packet.Fields {
			outcomes, keys = m.by(f, outcomes, keys)
		}
	}
	return outcomes
}

// merger gives equal sets, and equal fates, one number.
type merger struct {
	sets  map[string]int32
	fates map[fates]int32
	bytes []byte
}

// key has a number for the set of each field, and in place of packet.NoField one for the rest.
type key [packet.State + 1]int32

// fates is what two outcomes that are joined have in common, beside the fields.
type fates struct {
	leaves bool
	family redirect.Family
	a, b   fate
}

type fate struct {
	outcome        packet.Outcome
	port, zone     uint16
	mark, connMark packet.Mark
	local          bool
}

func fateOf(f packet.Fate) fate {
	return fate{f.Outcome, f.Port, f.Zone, f.Mark, f.ConnMark, f.Local}
}

func (m *merger) keyOf(o outcome) key {
	var k key
	rest := fates{o.class.Leaves, o.class.Family, fateOf(o.a), fateOf(o.b)}
	if _, ok := m.fates[rest]; !ok {
		m.fates[rest] = int32(len(m.fates))
	}
	k[packet.NoField] = m.fates[rest]
	for _, f := range packet.Fields {
		k[f] = m.number(o.class.Of(f))
	}
	return k
}

func (m *merger) number(s packet.Set) int32 {
	m.bytes = m.bytes[:0]
	for _, span := range s.Spans() {
		m.bytes = span.Last.Append(span.First.Append(m.bytes))
	}
	if _, ok := m.sets[string(m.bytes)]; !ok {
		m.sets[string(m.bytes)] = int32(len(m.sets))
	}
	return m.sets[string(m.bytes)]
}

// by joins what differs in one field.
func (m *merger) by(f packet.Field, outcomes []outcome, keys []key) ([]outcome, []key) {
	places := make(map[key]int, len(outcomes))
	parts := map[int][]packet.Set{} // of those that are joined, by their place
	kept := 0
	for i, k := range keys {
		k[f] = 0
		at, ok := places[k]
		if !ok {
			places[k] = kept
			outcomes[kept], keys[kept] = outcomes[i], keys[i]
			kept++
			continue
		}
		if parts[at] == nil {
			parts[at] = []packet.Set{outcomes[at].class.Of(f)}
		}
		parts[at] = append(parts[at], outcomes[i].class.Of(f))
	}
	for at, sets := range parts {
		union := packet.Union(sets...)
		outcomes[at].class = outcomes[at].class.With(f, union)
		keys[at][f] = m.number(union)
	}
	return outcomes[:kept], keys[:kept]
}
