package manifest

import "bytes"

// remove takes elements out of a mapping or a sequence in which others stay.
func (e *editor) remove(n *node, removed []bool) {
	spans := n.spans()
	first := 0 // that stays
	for first < len(removed) && removed[first] {
		first++
	}
	for i, one := range spans {
		switch {
		case !removed[i]:
		case n.flow && i > first:
			e.add(spans[i-1].end, one.end, "")
		case n.flow || !alone(e.text, spans[0].start) && i < first:
			// The first of a mapping stands behind the dash of its item.
			e.add(one.start, spans[i+1].start, "")
		default:
			e.removeLines(one)
		}
	}
}

// removeLines takes out whole lines, with the line break before them: what is inserted at their end
// or at the end of the line before stays apart.
func (e *editor) removeLines(one span) {
	start, end := lineStart(e.text, one.start), lineEnd(e.text, one.end)
	if start == 0 {
		e.add(start, end+breakLen(e.text, end), "")
		return
	}
	for n := 3; n > 0; n-- {
		if start >= n && breakLen(e.text, start-n) == n {
			start -= n
			break
		}
	}
	e.add(start, end, "")
}

// insert writes new elements behind one that stays, or before the first and its comments.
func (e *editor) insert(s spot, behind int, added []writer) {
	if len(added) == 0 {
		return
	}
	near := s.node.spans()[max(behind, 0)]
	if s.node.flow {
		e.insertFlow(near, behind, added)
		return
	}
	at := lineEnd(e.text, near.end)
	if behind < 0 {
		at = lineEnd(e.text, s.from)
	}
	var b bytes.Buffer
	for _, write := range added {
		e.style.line(&b, s.node.column)
		write(e.style, &b, "")
	}
	e.add(at, at, b.String())
}

// insertFlow writes new elements between brackets, each on its own line if its neighbour is.
func (e *editor) insertFlow(near span, behind int, added []writer) {
	var b bytes.Buffer
	s := e.style
	comma := s.comma()
	left := ""
	if alone(e.text, near.start) { // else the line may be the whole file
		left = margin(e.text, near.start)
		comma = "," + s.newline + left
	} else {
		s.open = false
	}
	for _, write := range added {
		if behind >= 0 {
			b.WriteString(comma)
		}
		write(s, &b, left)
		if behind < 0 {
			b.WriteString(comma)
		}
	}
	at := near.end
	if behind < 0 {
		at = near.start
	}
	e.add(at, at, b.String())
}

// replace writes a value anew.
func (e *editor) replace(s spot, value any) error {
	var b bytes.Buffer
	n := s.node
	empty := n.start == n.end
	switch {
	case s.from < 0:
		return errForm
	case s.flow:
		if empty {
			b.WriteByte(' ')
		}
		left := ""
		if e.style.open {
			left = margin(e.text, n.start)
		}
		e.style.bracket(&b, value, left)
		e.add(n.start, n.end, b.String())
	case isLeaf(value) && !empty && lineEnd(e.text, s.from) >= n.start:
		// In an item, a collection may start on the line of the dash.
		e.add(n.start, n.end, inBlock(value))
	case isLeaf(value):
		e.add(s.from, max(s.from, n.end), " "+inBlock(value))
	case s.item:
		b.WriteByte(' ')
		e.style.block(&b, value, s.column+2)
		e.add(s.from, max(s.from, n.end), b.String())
	default:
		from := s.from
		if empty {
			from = lineEnd(e.text, s.from) // behind a comment
		}
		e.style.behind(&b, value, s.column)
		e.add(from, max(from, n.end), b.String())
	}
	return nil
}
