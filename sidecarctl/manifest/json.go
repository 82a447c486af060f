package manifest

import (
	"encoding/json"
	"errors"
)

// jsonScanner finds the nodes of a JSON text that is known to be valid.
type jsonScanner struct {
	text []byte
	at   int
}

// jsonNode returns the nodes of a JSON text, which has been read before.
func jsonNode(text []byte) (*node, error) {
	s := &jsonScanner{text: text}
	return s.value(0)
}

func (s *jsonScanner) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	s.space()
	n := &node{flow: true, start: s.at, body: s.at}
	var err error
	switch s.peek() {
	case '{':
		n.kind = mapping
		err = s.elements(func() error { return s.member(n, depth) })
	case '[':
		n.kind = sequence
		err = s.elements(func() error { return s.element(n, depth) })
	case '"':
		s.string()
	default:
		for s.at < len(s.text) && !isSpace(s.peek()) && !isFlowEnd(s.peek()) {
			s.at++
		}
	}
	n.end = s.at
	return n, err
}

// elements reads what is between brackets.
func (s *jsonScanner) elements(one func() error) error {
	for s.at++; ; {
		s.space()
		switch s.peek() {
		case ',':
			s.at++
		case '}', ']':
			s.at++
			return nil
		case 0:
			return errors.New("not valid JSON: it ends in the middle of an object")
		default:
			if err := one(); err != nil {
				return err
			}
		}
	}
}

func (s *jsonScanner) member(n *node, depth int) error {
	e := entry{start: s.at}
	s.string()
	if err := json.Unmarshal(s.text[e.start:s.at], &e.name); err != nil {
		return err
	}
	s.space()
	s.at++
	e.colon = s.at
	var err error
	e.value, err = s.value(depth + 1)
	n.entries = append(n.entries, e)
	return err
}

func (s *jsonScanner) element(n *node, depth int) error {
	i := item{dash: s.at}
	var err error
	i.value, err = s.value(depth + 1)
	n.items = append(n.items, i)
	return err
}

func (s *jsonScanner) string() {
	s.at = quotedEnd(s.text, s.at)
}

func (s *jsonScanner) space() {
	for s.at < len(s.text) && isSpace(s.peek()) {
		s.at++
	}
}

func (s *jsonScanner) peek() byte { return at(s.text, s.at) }

// at returns a byte of a text; 0 beyond its end.
func at(text []byte, i int) byte {
	if i < 0 || i >= len(text) {
		return 0
	}
	return text[i]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isFlowEnd(c byte) bool { return c == ',' || c == '}' || c == ']' }

// quotedEnd returns where the text in quotes ends that starts at i.
func quotedEnd(text []byte, i int) int {
	quote := at(text, i)
	for i++; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '\'' && at(text, i+1) == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}
