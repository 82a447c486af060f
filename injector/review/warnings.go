package review

import (
	"fmt"
	"strings"
	"unicode"
)

// The API server cuts each warning at 256 bytes, and all of an answer at 4,096.
const (
	maxWarnings = 10
	maxWarning  = 256
	maxDenial   = 2000 // bytes, so that it is read
)

// short returns warnings as the API server takes them.
func short(warnings []string) []string {
	var all []string
	for i, warning := range warnings {
		if i == maxWarnings-1 && len(warnings) > maxWarnings {
			return append(all, fmt.Sprintf("sidecar-cni: and %d more warnings", len(warnings)-i))
		}
		all = append(all, clip("sidecar-cni: "+warning, maxWarning))
	}
	return all
}

// clip returns a text in one line of at most so many bytes, in valid UTF-8: a warning travels in a
// header, which has no control characters.
func clip(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(text, "\n", "; "), "?"))
	if len(text) <= most {
		return text
	}
	const dots = "..."
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}
