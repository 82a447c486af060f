// Package refusal words why a pod does not start, for whoever reads `kubectl describe pod`: what
// was done, what was in its way, and what to do about it.
//
//	text := refusal.Text(fmt.Errorf("redirect pod %s: %w", name, err), "load the module nf_tables")
package refusal

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Most is how much the kubelet's events have room for, beside what runtime and kubelet add.
const Most = 800

// Text puts a cause and its remedy into one line that fits into an event. The remedy is "" if the
// cause says it.
func Text(cause error, remedy string) string {
	if remedy != "" {
		remedy = "; remedy: " + remedy
	}
	line := strings.ReplaceAll(cause.Error(), "\n", "; ") // errors.Join puts each on a line
	return clip(printable(line), Most-len(remedy)) + remedy
}

// printable replaces what is no text. Errors quote what others have sent, and a runtime that is
// answered in protobuf hears nothing at all if it is no UTF-8.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// clip takes out of the middle what is too much: a text begins with what was done and ends with
// what to do.
func clip(s string, most int) string {
	const gap = " ... "
	if len(s) <= most {
		return s
	}
	half := (most - len(gap)) / 2
	return strings.ToValidUTF8(s[:half], "") + gap + strings.ToValidUTF8(s[len(s)-half:], "")
}
