// Package foreign makes texts that somebody else wrote fit for a line on a terminal.
//
//	fmt.Errorf("read %s: %s", foreign.Name(name), foreign.Line(err.Error()))
package foreign

import (
	"strconv"
	"strings"
	"unicode"
)

const (
	longestName = 400 // more than a namespace and a name may have together
	longestLine = 300
)

// Name returns a name as it is, or quoted where a terminal would not show it as it is. It is cut
// where it is longer than any name.
func Name(name string) string {
	name = clip(name, longestName)
	if strings.IndexFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 &&
		strings.ToValidUTF8(name, "") == name {
		return name
	}
	return strconv.Quote(name)
}

// Line returns a message as a part of one line, cut where it is long.
func Line(message string) string {
	message = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !strconv.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, clip(message, longestLine))
	return strings.Join(strings.Fields(message), " ")
}

// Cut returns a name cut where it is longer than any name, for a message that quotes it.
func Cut(name string) string { return clip(name, longestName) }

func clip(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
