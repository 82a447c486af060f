package target

import (
	"strconv"
	"strings"
	"unicode"
)

const (
	longestName  = 400 // more than a namespace and a name may have together
	longestCause = 300
)

// printable makes a name fit for a terminal.
func printable(name string) string {
	name = clip(name, longestName)
	if strings.IndexFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 &&
		strings.ToValidUTF8(name, "") == name {
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
	}, clip(message, longestCause))
	return strings.Join(strings.Fields(message), " ")
}

func clip(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

// fault is an error whose text is one line whatever its cause holds.
type fault struct {
	text  string
	cause error
}

func (f *fault) Error() string { return f.text }

func (f *fault) Unwrap() error { return f.cause }
