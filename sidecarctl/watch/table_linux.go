package watch

import "time"

// maxFollowed is how many open connections are remembered, for their ends.
const maxFollowed = 64 << 10

// followed is a connection that is open.
type followed struct {
	Connection
	since time.Time // it began; zero: it was there before
}

// table remembers up to max open connections. When it is full it forgets the oldest.
type table[K comparable] struct {
	max       int
	open      map[K]*followed
	order     []ordered[K] // by age; some have ended
	forgotten uint64
}

type ordered[K comparable] struct {
	key K
	id  uint64 // of the connection: another may have the key later
}

func newTable[K comparable](most int) *table[K] {
	return &table[K]{max: most, open: map[K]*followed{}}
}

func (t *table[K]) add(k K, f *followed) {
	t.open[k] = f
	t.order = append(t.order, ordered[K]{k, f.ID})
	for len(t.open) > t.max {
		oldest := t.order[0]
		t.order = t.order[1:]
		if one, ok := t.open[oldest.key]; ok && one.ID == oldest.id {
			delete(t.open, oldest.key)
			t.forgotten++
		}
	}
	if len(t.order) > 2*t.max {
		t.compact()
	}
}

// compact drops those from the order that have ended.
func (t *table[K]) compact() {
	var order []ordered[K]
	for _, o := range t.order {
		if one, ok := t.open[o.key]; ok && one.ID == o.id {
			order = append(order, o)
		}
	}
	t.order = order
}
