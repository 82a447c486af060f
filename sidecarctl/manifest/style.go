package manifest

// style is how a document is written.
type style struct {
	newline string
	indent  int    // of a mapping within a mapping
	dash    int    // of a sequence within a mapping
	unit    string // of indentation between brackets
	compact bool   // between brackets, no space behind colon and comma
	quoted  bool   // all of it is between brackets
	open    bool   // all of it is between brackets, each element on its own line
}

// styleOf sees how a document is written, by the first of its places that tells.
func styleOf(d *document) style {
	s := style{newline: "\n", indent: -1, dash: -1, unit: "  "}
	if i := lineEnd(d.text, 0); breakLen(d.text, i) == 2 && d.text[i] == '\r' {
		s.newline = "\r\n"
	}
	if s.quoted = d.root.flow; s.quoted && len(d.root.entries) > 0 {
		first := d.root.entries[0]
		s.compact = !isSpace(at(d.text, first.colon)) && first.colon > 0
		if start := lineStart(d.text, first.start); start > d.root.body &&
			alone(d.text, first.start) {
			s.open, s.unit = true, string(d.text[start:first.start])
		}
	}
	for _, p := range d.pods {
		if body := d.root.at(p.path); body != nil {
			s.look(body)
			break
		}
	}
	s.look(d.root)
	if s.indent < 1 {
		s.indent = 2
	}
	s.dash = max(s.dash, 0)
	return s
}

// look takes the indentation from the blocks of a node.
func (s *style) look(n *node) {
	for _, e := range n.entries {
		switch {
		case n.flow || s.indent > 0 && s.dash >= 0:
			return
		case e.value.flow:
		case e.value.kind == mapping && s.indent < 0:
			s.indent = e.value.column - n.column
		case e.value.kind == sequence && s.dash < 0:
			s.dash = e.value.column - n.column
		}
		s.look(e.value)
	}
	for _, i := range n.items {
		s.look(i.value)
	}
}

// at returns the node at a path; nil if it does not stand there by itself.
func (n *node) at(path []any) *node {
	for _, step := range path {
		i, ok := step.(int)
		if key, isKey := step.(string); isKey {
			i = n.entry(key)
			ok = i >= 0
		}
		switch {
		case !ok || n.fixed:
			return nil
		case i < len(n.entries):
			n = n.entries[i].value
		case i < len(n.items):
			n = n.items[i].value
		default:
			return nil
		}
	}
	return n
}
