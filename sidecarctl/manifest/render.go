package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// plain are strings that nothing reads as anything else, unless they are one of words.
var (
	plain = regexp.MustCompile(`^(?:--?)?[A-Za-z/](?:[A-Za-z0-9_./=@%+-]|:[A-Za-z0-9_./=@%+-]| [A-Za-z0-9_./=@%+-])*$`)
	words = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true,
		"off": true, "true": true, "false": true, "null": true, "nan": true, "inf": true}
)

func isPlain(s string) bool { return plain.MatchString(s) && !words[strings.ToLower(s)] }

// inBlock returns a scalar, or a collection that is empty.
func inBlock(value any) string {
	s, ok := value.(string)
	switch {
	case !ok:
		return inJSON(value)
	case isPlain(s):
		return s
	case strings.ContainsAny(s, "\"\\") && !strings.ContainsFunc(s, escaped) &&
		!strings.Contains(s, "'"):
		return "'" + s + "'"
	}
	return quote(s)
}

// inBrackets returns the same for a place between brackets. In a document that is all brackets,
// strings are quoted as in JSON: it may be read as JSON.
func (s style) inBrackets(value any) string {
	text, ok := value.(string)
	if ok && (s.quoted || strings.Contains(text, ":") && isPlain(text)) {
		return quote(text)
	}
	return inBlock(value)
}

func inJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "null" // no value of a tree; what is written is compared with what was wanted
	}
	return string(data)
}

// quote writes a string in double quotes. What YAML has for no character, or for a line break, is
// escaped as JSON and YAML both read it.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case escaped(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// escaped reports whether a character is none to YAML, or breaks lines.
func escaped(r rune) bool {
	switch r {
	case 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF:
		return true
	}
	return r < ' ' || r >= 0x7F && r < 0xA0
}

// isLeaf reports whether a value is written on the line of its key.
func isLeaf(value any) bool {
	switch value := value.(type) {
	case podtree.Object:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return true
}

// keys are sorted, name first as in most manifests.
func keys(object podtree.Object) []string {
	return slices.SortedFunc(maps.Keys(object), func(a, b string) int {
		if first := (a == "name"); first != (b == "name") {
			if first {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
}

// block writes a collection that starts at a column, its first line without indentation.
func (s style) block(b *bytes.Buffer, value any, column int) {
	if list, ok := value.([]any); ok {
		for i, item := range list {
			if i > 0 {
				s.line(b, column)
			}
			s.item(b, item, column)
		}
		return
	}
	object, _ := value.(podtree.Object)
	for i, key := range keys(object) {
		if i > 0 {
			s.line(b, column)
		}
		s.entry(b, key, object[key], column)
	}
}

// line begins a line.
func (s style) line(b *bytes.Buffer, column int) {
	b.WriteString(s.newline)
	b.WriteString(strings.Repeat(" ", column))
}

func (s style) item(b *bytes.Buffer, value any, column int) {
	b.WriteString("- ")
	if isLeaf(value) {
		b.WriteString(inBlock(value))
		return
	}
	s.block(b, value, column+2)
}

func (s style) entry(b *bytes.Buffer, key string, value any, column int) {
	b.WriteString(inBlock(key))
	b.WriteByte(':')
	s.behind(b, value, column)
}

// behind writes a value behind the colon of a key that stands at a column.
func (s style) behind(b *bytes.Buffer, value any, column int) {
	if isLeaf(value) {
		b.WriteByte(' ')
		b.WriteString(inBlock(value))
		return
	}
	within := column + s.indent
	if _, ok := value.([]any); ok {
		within = column + s.dash
	}
	s.line(b, within)
	s.block(b, value, within)
}

// bracket writes a value between brackets. margin is what its first line starts with.
func (s style) bracket(b *bytes.Buffer, value any, margin string) {
	if isLeaf(value) {
		b.WriteString(s.inBrackets(value))
		return
	}
	within := margin + s.unit
	element := func(i int) {
		switch {
		case i > 0 && !s.open:
			b.WriteString(s.comma())
		case i > 0:
			b.WriteByte(',')
		}
		if s.open {
			b.WriteString(s.newline + within)
		}
	}
	ends := "[]"
	if list, ok := value.([]any); ok {
		b.WriteByte('[')
		for i, item := range list {
			element(i)
			s.bracket(b, item, within)
		}
	} else {
		ends = "{}"
		b.WriteByte('{')
		object, _ := value.(podtree.Object)
		for i, key := range keys(object) {
			element(i)
			s.member(b, key, object[key], within)
		}
	}
	if s.open {
		b.WriteString(s.newline + margin)
	}
	b.WriteByte(ends[1])
}

func (s style) member(b *bytes.Buffer, key string, value any, margin string) {
	b.WriteString(s.inBrackets(key))
	b.WriteByte(':')
	if !s.compact {
		b.WriteByte(' ')
	}
	s.bracket(b, value, margin)
}

func (s style) comma() string {
	if s.compact {
		return ","
	}
	return ", "
}
