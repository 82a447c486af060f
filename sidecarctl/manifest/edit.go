package manifest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// edit replaces a part of a document's text.
type edit struct {
	span
	text string
	pod  int // whose it is
}

// editor finds the edits that make of a document what it should be.
type editor struct {
	text  []byte
	style style
	edits []edit
	pod   int             // whose edits are being found
	wide  bool            // metadata and spec of a pod are written anew as a whole
	done  map[string]bool // what has been written anew above pods: they share an alias
}

// spot is where a value stands or would stand.
type spot struct {
	node   *node
	from   int // behind the colon or the dash; -1 for the document itself
	column int // of the key or the dash, in a block
	flow   bool
	item   bool
}

var errForm = errors.New("it cannot be edited as it is written; " +
	"write it as plain YAML: a key and its value to a line")

func (n *node) entrySpot(i int) spot {
	e := n.entries[i]
	return spot{node: e.value, from: e.colon, column: n.column, flow: n.flow}
}

func (n *node) itemSpot(i int) spot {
	return spot{node: n.items[i].value, from: n.items[i].dash + 1, column: n.column, flow: n.flow,
		item: true}
}

// follow edits what is at a path, or the first on the way there that has no text of its own.
func (e *editor) follow(root *node, path []any, before, after any) error {
	s := spot{node: root, from: -1}
	for depth, step := range path {
		i, isIndex := step.(int)
		key, _ := step.(string)
		if !isIndex {
			i = s.node.entry(key)
		}
		switch {
		case s.node.fixed || i < 0 || i >= len(s.node.items)+len(s.node.entries):
			return e.once(s, pathText(path[:depth]), valueAt(after, path[:depth]))
		case isIndex:
			s = s.node.itemSpot(i)
		default:
			s = s.node.entrySpot(i)
		}
	}
	before, after = valueAt(before, path), valueAt(after, path)
	if e.wide && s.node.kind == mapping && !s.node.fixed {
		old, _ := before.(podtree.Object)
		wanted, _ := after.(podtree.Object)
		return e.mapping(s, old, wanted, e.anew)
	}
	if s.node.kind == alias {
		return e.once(s, pathText(path), after)
	}
	return e.change(s, before, after)
}

func (e *editor) once(s spot, path string, value any) error {
	if e.done[path] {
		return nil
	}
	e.done[path] = true
	return e.replace(s, value)
}

func (e *editor) anew(s spot, before, after any) error {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return e.replace(s, after)
}

// change edits a value where it differs.
func (e *editor) change(s spot, before, after any) error {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	if !s.node.fixed && !isLeaf(after) {
		oldObject, isObject := before.(podtree.Object)
		object, stays := after.(podtree.Object)
		if isObject && stays && s.node.kind == mapping && s.node.says(oldObject, object) {
			return e.mapping(s, oldObject, object, e.change)
		}
		oldList, isList := before.([]any)
		list, stays := after.([]any)
		if isList && stays && s.node.kind == sequence && len(oldList) == len(s.node.items) {
			return e.sequence(s, oldList, list)
		}
	}
	return e.replace(s, after)
}

// says reports whether all that differs stands in the text of a mapping, rather than in one that
// it merges in.
func (n *node) says(before, after podtree.Object) bool {
	if !n.merges {
		return true
	}
	for key, old := range before {
		value, stays := after[key]
		if n.entry(key) < 0 && (!stays || !reflect.DeepEqual(old, value)) {
			return false
		}
	}
	return true
}

func (e *editor) mapping(s spot, before, after podtree.Object,
	child func(spot, any, any) error) error {
	n := s.node
	removed := make([]bool, len(n.entries))
	last := -1
	for i, entry := range n.entries {
		old, was := before[entry.name]
		value, is := after[entry.name]
		if removed[i] = was && !is; removed[i] {
			continue
		}
		last = i
		if was {
			if err := child(n.entrySpot(i), old, value); err != nil {
				return err
			}
		}
	}
	if last < 0 {
		return e.replace(s, after)
	}
	var added []writer
	for _, key := range keys(after) {
		if _, was := before[key]; !was {
			added = append(added, newEntry(n, key, after[key]))
		}
	}
	e.remove(n, removed)
	e.insert(s, last, added)
	return nil
}

// writer writes a new element; between brackets, in a line that starts with margin.
type writer func(s style, b *bytes.Buffer, margin string)

func newEntry(n *node, key string, value any) writer {
	return func(s style, b *bytes.Buffer, margin string) {
		if n.flow {
			s.member(b, key, value, margin)
			return
		}
		s.entry(b, key, value, n.column)
	}
}

func newItem(n *node, value any) writer {
	return func(s style, b *bytes.Buffer, margin string) {
		if n.flow {
			s.bracket(b, value, margin)
			return
		}
		s.item(b, value, n.column)
	}
}

func (e *editor) sequence(s spot, before, after []any) error {
	n := s.node
	matches := align(before, after)
	removed := slices.Repeat([]bool{true}, len(before))
	added := map[int][]writer{}
	last, kept := -1, 0
	for i, match := range matches {
		if match < 0 {
			added[last] = append(added[last], newItem(n, after[i]))
			continue
		}
		last, removed[match] = match, false
		kept++
	}
	moves := kept < len(before) || kept < len(after)
	if kept == 0 || moves && !n.flow && !alone(e.text, n.items[0].dash) {
		return e.replace(s, after)
	}
	for i, match := range matches {
		if match >= 0 {
			if err := e.change(n.itemSpot(match), before[match], after[i]); err != nil {
				return err
			}
		}
	}
	e.remove(n, removed)
	for at, items := range added {
		e.insert(s, at, items)
	}
	return nil
}

// add notes an edit.
func (e *editor) add(start, end int, text string) {
	e.edits = append(e.edits, edit{span{start, end}, text, e.pod})
}

// sorted returns the edits in the order of the text. An insertion goes before what is replaced at
// its place. Edits that overlap are a mistake.
func sorted(edits []edit, size int) ([]edit, error) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return a.end - b.end
	})
	last := 0
	for _, one := range edits {
		if one.start < last || one.end < one.start || one.end > size {
			return nil, errForm
		}
		last = one.end
	}
	return edits, nil
}

// apply returns the text with its edits, which are sorted.
func apply(text []byte, edits []edit) []byte {
	var b bytes.Buffer
	last := 0
	for _, one := range edits {
		b.Write(text[last:one.start])
		b.WriteString(one.text)
		last = one.end
	}
	b.Write(text[last:])
	return b.Bytes()
}

// margin returns the spaces and tabs that the line of i starts with.
func margin(text []byte, i int) string {
	line := string(text[lineStart(text, i):i])
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}
