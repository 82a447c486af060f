package manifest

import (
	"strconv"
	"strings"
	"unicode"
)

// longest is how much of somebody else's text a message quotes.
const longest = 300

// printable makes a name fit for a terminal.
func printable(name string) string {
	name = clip(name)
	if strings.IndexFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return name
	}
	return strconv.Quote(name)
}

// oneLine makes a message of somebody else part of a line.
func oneLine(message string) string {
	message = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !strconv.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, clip(message))
	return strings.Join(strings.Fields(message), " ")
}

func clip(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
