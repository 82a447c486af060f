package manifest

// kind is what a node is.
type kind int

const (
	scalar kind = iota
	alias       // *name, or what has to be written anew as a whole to change
	mapping
	sequence
)

// node is where in a document's text a value stands. What the value is, the tree says.
type node struct {
	kind       kind
	flow       bool // in brackets or braces, or JSON
	start, end int  // of its text, with anchor and tag, without the last line break
	body       int  // behind anchor and tag
	column     int  // of a block's keys or dashes
	fixed      bool // a form that is only ever replaced as a whole
	merges     bool // has a key <<: not all keys of its value stand in its text
	entries    []entry
	items      []item
}

// entry is a key of a mapping with its value.
type entry struct {
	name  string // as JSON has it
	start int
	colon int // behind the colon
	value *node
}

// item is an element of a sequence. dash is where it starts: at the dash of a block's item.
type item struct {
	dash  int
	value *node
}

// entry returns the place of a key; -1 if there is none.
func (n *node) entry(name string) int {
	for i := range n.entries {
		if n.entries[i].name == name {
			return i
		}
	}
	return -1
}

// spans are where the elements of a mapping or a sequence start and end.
func (n *node) spans() []span {
	spans := make([]span, 0, len(n.entries)+len(n.items))
	for _, e := range n.entries {
		spans = append(spans, span{e.start, max(e.colon, e.value.end)})
	}
	for _, i := range n.items {
		spans = append(spans, span{i.dash, max(i.dash, i.value.end)})
	}
	return spans
}

// span is a part of a text.
type span struct{ start, end int }
