package manifest

import "unicode/utf8"

// breakLen returns how long the line break at i is; 0 if there is none. YAML 1.1, which kubectl
// reads, has three more line breaks than people expect: NEL, LS and PS.
func breakLen(text []byte, i int) int {
	switch {
	case i >= len(text):
		return 0
	case text[i] == '\n':
		return 1
	case text[i] == '\r' && at(text, i+1) == '\n':
		return 2
	case text[i] == '\r':
		return 1
	case text[i] == 0xC2 && at(text, i+1) == 0x85:
		return 2
	case text[i] == 0xE2 && at(text, i+1) == 0x80 && at(text, i+2)|1 == 0xA9:
		return 3
	}
	return 0
}

// lineEnd returns where the line of i ends, before its break.
func lineEnd(text []byte, i int) int {
	for i < len(text) && breakLen(text, i) == 0 {
		i++
	}
	return i
}

// nextLine returns where the line behind that of i starts.
func nextLine(text []byte, i int) int {
	i = lineEnd(text, i)
	return i + breakLen(text, i)
}

// lineStart returns where the line of i starts.
func lineStart(text []byte, i int) int {
	for i > 0 && !endsLine(text, i) {
		i--
	}
	return i
}

// endsLine reports whether a line break ends right before i.
func endsLine(text []byte, i int) bool {
	for n := 1; n <= 3 && n <= i; n++ {
		if breakLen(text, i-n) == n {
			return true
		}
	}
	return false
}

// column returns how many characters are before i on its line.
func column(text []byte, i int) int { return utf8.RuneCount(text[lineStart(text, i):i]) }

// alone reports whether nothing but spaces is before i on its line.
func alone(text []byte, i int) bool {
	for i > 0 && (text[i-1] == ' ' || text[i-1] == '\t') {
		i--
	}
	return i == 0 || endsLine(text, i)
}

// cursor turns lines and columns into offsets. Asked in the order of the text, it reads it once.
type cursor struct {
	text         []byte
	starts       []int
	line, column int
	offset       int
}

func newCursor(text []byte) *cursor {
	c := &cursor{text: text, starts: []int{0}}
	for i := 0; i < len(text); {
		if n := breakLen(text, i); n > 0 {
			i += n
			c.starts = append(c.starts, i)
			continue
		}
		i++
	}
	return c
}

// at returns the offset of a line and a column, both from 0, or -1. Columns count characters.
func (c *cursor) at(line, column int) int {
	if line < 0 || line >= len(c.starts) {
		return -1
	}
	if line != c.line || column < c.column || c.offset == 0 {
		c.line, c.column, c.offset = line, 0, c.starts[line]
	}
	for c.column < column && c.offset < len(c.text) {
		_, size := utf8.DecodeRune(c.text[c.offset:])
		c.offset += size
		c.column++
	}
	return c.offset
}
