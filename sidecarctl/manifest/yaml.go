package manifest

import (
	"errors"
	"fmt"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// maxDepth is how deep a document may be nested.
const maxDepth = 500

var errDeep = fmt.Errorf("it is nested deeper than %d levels; no manifest is", maxDepth)

// yamlScanner finds the nodes of a YAML document. The library says where they start; where they
// end, their text has to tell.
type yamlScanner struct {
	text   []byte
	cursor *cursor
}

// place is where a node stands.
type place struct {
	at     int // where it is if it is empty: behind the colon or the dash
	indent int // of the block that it is in; -1 for the document's own
	flow   bool
	depth  int
}

// yamlNode returns the nodes of a document.
func yamlNode(text []byte, root *yaml.Node) (*node, error) {
	s := &yamlScanner{text: text, cursor: newCursor(text)}
	return s.node(root, place{indent: -1})
}

func (s *yamlScanner) node(y *yaml.Node, p place) (*node, error) {
	if p.depth > maxDepth {
		return nil, errDeep
	}
	p.depth++
	if empty(y) {
		return &node{start: p.at, end: p.at, body: p.at, flow: p.flow}, nil
	}
	start := s.cursor.at(y.Line-1, y.Column-1)
	if start < 0 {
		return nil, errors.New("read it: a line of it is not found")
	}
	n := &node{start: start, body: start}
	if y.Anchor != "" || y.Style&yaml.TaggedStyle != 0 || y.Kind != yaml.MappingNode {
		n.body = s.content(start)
	}
	n.end = n.body
	n.flow = p.flow || y.Style&yaml.FlowStyle != 0
	var err error
	switch y.Kind {
	case yaml.AliasNode:
		n.kind = alias
		n.end = start + 1 + len(y.Value)
	case yaml.MappingNode:
		err = s.mapping(n, y, p)
	case yaml.SequenceNode:
		err = s.sequence(n, y, p)
	default:
		n.end = s.scalarEnd(y, n.body, p.indent)
	}
	n.end = min(n.end, len(s.text))
	return n, err
}

// empty reports whether nothing stands where a value is, so that it is null.
func empty(y *yaml.Node) bool {
	return y.Kind == yaml.ScalarNode && y.Value == "" && y.Anchor == "" && y.Style == 0
}

func (s *yamlScanner) mapping(n *node, y *yaml.Node, p place) error {
	n.kind = mapping
	n.fixed = n.flow && at(s.text, n.body) != '{'
	if !n.flow && len(y.Content) > 0 {
		// A key of its own line starts at its question mark, which no node has.
		n.column = min(y.Content[0].Column-1, column(s.text, n.body))
		p.indent = n.column
	}
	p.flow = n.flow
	seen := make(map[string]bool, len(y.Content)/2)
	for i := 0; i+1 < len(y.Content); i += 2 {
		e, err := s.entry(n, y.Content[i], p)
		if err != nil {
			return err
		}
		if seen[e.name] && e.name != "<<" {
			return fmt.Errorf("line %d: key %s is there twice; keep one of them",
				y.Content[i].Line, foreign.Name(e.name))
		}
		seen[e.name] = true
		p.at = e.colon
		if e.value, err = s.node(y.Content[i+1], p); err != nil {
			return err
		}
		n.entries = append(n.entries, e)
		n.end = max(e.colon, e.value.end)
	}
	if n.flow && !n.fixed {
		n.end = s.close(n)
	}
	return nil
}

// entry reads a key up to its colon.
func (s *yamlScanner) entry(n *node, y *yaml.Node, p place) (entry, error) {
	p.at = n.end
	key, err := s.node(y, p)
	if err != nil {
		return entry{}, err
	}
	if y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	e := entry{name: keyName(y), start: key.start, colon: key.end}
	if y.Kind == yaml.ScalarNode && y.Value == "<<" && y.Style&quotes == 0 {
		n.merges = true
	}
	i := e.colon
	for at(s.text, i) == ' ' || at(s.text, i) == '\t' {
		i++
	}
	if at(s.text, i) == ':' && !empty(y) && y.Kind == yaml.ScalarNode {
		e.colon = i + 1
	} else {
		n.fixed = true // ? key, or in braces a key alone
	}
	return e, nil
}

func (s *yamlScanner) sequence(n *node, y *yaml.Node, p place) error {
	n.kind = sequence
	p.flow = n.flow
	for i, content := range y.Content {
		one := item{}
		if !n.flow {
			one.dash = s.skip(max(n.end, n.body), "")
			if at(s.text, one.dash) != '-' {
				return fmt.Errorf("read it: no dash is found before line %d", content.Line)
			}
			if i == 0 {
				n.column = column(s.text, one.dash)
				p.indent = n.column
			}
			p.at = one.dash + 1
		}
		var err error
		if one.value, err = s.node(content, p); err != nil {
			return err
		}
		if n.flow {
			one.dash = one.value.start
		}
		n.items = append(n.items, one)
		n.end = max(one.dash+1, one.value.end)
	}
	if n.flow {
		n.end = s.close(n)
	}
	return nil
}

// close returns the end of what is in brackets or braces.
func (s *yamlScanner) close(n *node) int {
	last := n.body + 1
	for _, element := range n.spans() {
		last = max(last, element.end)
	}
	return s.skip(last, ",:") + 1
}

// content skips anchor and tag.
func (s *yamlScanner) content(i int) int {
	for at(s.text, i) == '&' || at(s.text, i) == '!' {
		for i < len(s.text) && !isSpace(s.text[i]) && breakLen(s.text, i) == 0 {
			if at(s.text, i) == ',' || at(s.text, i) == '}' || at(s.text, i) == ']' {
				return i
			}
			i++
		}
		if next := s.skip(i, ""); next < len(s.text) {
			i = next
		}
	}
	return i
}

// skip skips spaces, line breaks, comments and the characters in also.
func (s *yamlScanner) skip(i int, also string) int {
	for i < len(s.text) {
		n := breakLen(s.text, i)
		switch {
		case n > 0:
			i += n
		case isSpace(s.text[i]) || strings.IndexByte(also, s.text[i]) >= 0:
			i++
		case s.text[i] == '#':
			i = lineEnd(s.text, i)
		default:
			return i
		}
	}
	return i
}

// keyName returns a key as JSON has it: to kubectl 1: is "1": and yes: is "true":.
func keyName(y *yaml.Node) string {
	if y.Style&quotes != 0 || isPlain(y.Value) {
		return y.Value
	}
	var value map[string]any
	text := append([]byte(y.Value), ": 0"...)
	if strings.ContainsAny(y.Value, "\n\r") || yamlv2.Unmarshal(text, new(any)) != nil {
		return y.Value
	}
	if tree, err := yamlTree(text); err == nil {
		value, _ = tree.(map[string]any)
	}
	for name := range value {
		return name
	}
	return y.Value
}
