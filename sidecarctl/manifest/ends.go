package manifest

import (
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle

// scalarEnd returns where the text of a scalar ends that starts at i, in a block of that indent.
func (s *yamlScanner) scalarEnd(y *yaml.Node, i, indent int) int {
	switch {
	case y.Style&quotes != 0:
		return quotedEnd(s.text, i)
	case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return s.blockEnd(i, max(indent, -1))
	}
	return s.plainEnd(y.Value, i)
}

// plainEnd follows the value through the text. A plain scalar has no escapes; only where it has
// spaces or line breaks may its text have other ones, and more.
func (s *yamlScanner) plainEnd(value string, i int) int {
	end := i
	for v := 0; v < len(value); {
		if breakLen([]byte(value[v:min(v+3, len(value))]), 0) > 0 || isSpace(value[v]) {
			v = skipBlank([]byte(value), v)
			i = skipBlank(s.text, i)
			continue
		}
		_, size := utf8.DecodeRuneInString(value[v:])
		v += size
		i += size
		end = i
	}
	return end
}

func skipBlank(text []byte, i int) int {
	for i < len(text) {
		n := breakLen(text, i)
		if n == 0 && !isSpace(text[i]) {
			return i
		}
		i += max(n, 1)
	}
	return i
}

// blockEnd returns where a scalar behind | or > ends, before its last line break. With + the empty
// lines behind it are its own.
func (s *yamlScanner) blockEnd(i, indent int) int {
	keep, width := false, 0
	end := lineEnd(s.text, i)
	for i++; i < end && !isSpace(s.text[i]) && s.text[i] != '#'; i++ {
		if s.text[i] == '+' {
			keep = true
		}
		if c := s.text[i]; c >= '1' && c <= '9' {
			width = max(indent, 0) + int(c-'0')
		}
	}
	last := end
	for line := end + breakLen(s.text, end); line < len(s.text); line = nextLine(s.text, line) {
		first, stop := line, lineEnd(s.text, line)
		for first < stop && s.text[first] == ' ' {
			first++
		}
		blank := first == stop
		if !blank && width == 0 {
			width = max(first-line, indent+1, 1)
		}
		if !blank && first-line < width {
			break
		}
		if !blank || keep || width > 0 && first-line > width {
			last = stop
		}
	}
	return last
}
