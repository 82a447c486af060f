package nftrace

import (
	"slices"

	"golang.org/x/sys/unix"
)

// tracker puts what the kernel reports together to the ways of packets.
type tracker struct {
	table string              // of the tracing rules, with its family
	rules known               // of the namespace
	name  func(uint32) string // of an interface, by its index

	ids   map[uint32]origin // by which the kernel calls packets
	ways  map[origin]*Way   // that have no end yet
	order []origin          // of ways, the oldest first

	reread func() (known, error) // when a rule is met that is none of rules; nil: never

	forgotten uint64 // packets that had no end when too many others came
}

// What a tracker keeps at most.
const (
	maxIDs  = 4096
	maxWays = 256
)

func newTracker(table string, rules known, name func(uint32) string) *tracker {
	return &tracker{table: "inet " + table, rules: rules, name: name, ids: map[uint32]origin{},
		ways: map[origin]*Way{}}
}

// add reads a report. It returns the way of a packet that is at its end by that.
func (t *tracker) add(e event) *Way {
	from, known := t.origin(e)
	if !known {
		return nil
	}
	way := t.ways[from]
	if e.table == t.table && (e.chain == firstOut || e.chain == firstIn) {
		if way != nil && e.chain == firstIn && way.Out != "" {
			way.End.To = e.tuple.destination
			return nil // it comes in again, over lo
		}
		if !e.isRule() {
			return nil
		}
		if way != nil { // it is sent again, so its first attempt went nowhere
			way = t.end(from, Gone)
		}
		t.begin(from, e)
		return way
	}
	if way == nil {
		return nil // traced by somebody else
	}
	if e.headed {
		way.End.To = e.tuple.destination
	}
	if e.table == t.table {
		return t.last(from, e)
	}
	return t.rule(from, e)
}

// origin is whose packet a report is about.
func (t *tracker) origin(e event) (origin, bool) {
	if e.headed {
		if len(t.ids) >= maxIDs {
			clear(t.ids)
		}
		t.ids[e.id] = e.tuple.origin()
	}
	from, known := t.ids[e.id]
	return from, known
}

func (t *tracker) begin(from origin, e event) {
	if len(t.order) >= maxWays {
		delete(t.ways, t.order[0])
		t.order = t.order[1:]
		t.forgotten++
	}
	w := &Way{Protocol: e.tuple.protocol.String(), protocol: e.tuple.protocol,
		Source: e.tuple.source, Destination: e.tuple.destination,
		End: End{To: e.tuple.destination}}
	if e.chain == firstIn {
		w.In = t.name(e.in)
	} else {
		w.Out = t.name(e.out)
	}
	t.ways[from], t.order = w, append(t.order, from)
}

func (t *tracker) end(from origin, kind string) *Way {
	way := t.ways[from]
	delete(t.ways, from)
	t.order = slices.DeleteFunc(t.order, func(o origin) bool { return o == from })
	way.End.Kind = kind
	return way
}

// last reads a report of one of our last chains. The first one about a chain says all.
func (t *tracker) last(from origin, e event) *Way {
	if !e.headed {
		return nil
	}
	way := t.ways[from]
	// What goes over lo is confirmed between our two last chains.
	if overLo := e.chain == lastIn && way.Out != ""; !overLo && e.isRule() &&
		e.verdict == verdictContinue {
		way.known = true
	}
	switch e.chain {
	case lastIn:
		return t.end(from, Stays)
	case lastForward, lastOut:
		name := t.name(e.out)
		if e.chain == lastOut && name == lo {
			return nil // it comes in again
		}
		t.end(from, Leaves)
		way.End.Interface = name
		return way
	}
	return nil
}

// rule reads a report of somebody's rule, or of a chain's policy.
func (t *tracker) rule(from origin, e event) *Way {
	way := t.ways[from]
	switch {
	case e.isRule():
		met := t.find(ruleKey{e.table, e.chain, e.handle})
		met.Verdict = e.verdict
		if e.to != "" {
			met.Verdict += " " + e.to
		}
		way.Rules = append(way.Rules, met)
	case e.kind == unix.NFT_TRACETYPE_POLICY && e.verdict == verdictDrop:
		way.End.Chain = e.table + " " + e.chain
	}
	if e.verdict == verdictDrop {
		return t.end(from, Dropped)
	}
	return nil
}

// find returns a rule. One that is not known has come since the rules were read, or has gone.
func (t *tracker) find(key ruleKey) Rule {
	met, known := t.rules[key]
	if !known && t.reread != nil {
		if rules, err := t.reread(); err == nil {
			t.rules = rules
		}
		met, known = t.rules[key]
	}
	if !known {
		return Rule{Table: key.table, Chain: key.chain, Handle: key.handle}
	}
	return met
}

// Verdicts of rules, in nft's words.
const (
	verdictDrop     = "drop"
	verdictContinue = "continue"
)

// unfinished is the way of a packet as far as it was reported.
func (t *tracker) unfinished(from origin) (*Way, bool) {
	if t.ways[from] == nil {
		return nil, false
	}
	return t.end(from, Gone), true
}
