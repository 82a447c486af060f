package netconf

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// value reads a setting of one type into a field, if ok finds nothing wrong with it. JSON's null is
// of no type here.
func value[T any](field func(*Conf) *T, ok func(T) bool) func([]byte, *Conf) bool {
	return func(raw []byte, c *Conf) bool {
		var v T
		if string(raw) == "null" || json.Unmarshal(raw, &v) != nil || !ok(v) {
			return false
		}
		*field(c) = v
		return true
	}
}

// whatever leaves it to redirect.Config to say what it can work with.
func whatever[T any](T) bool { return true }

func oneOf(words ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(words, v) }
}

func each(ok func(string) bool) func([]string) bool {
	return func(list []string) bool {
		return !slices.ContainsFunc(list, func(v string) bool { return !ok(v) })
	}
}

// isName is as strict as Kubernetes is about the names of namespaces.
func isName(s string) bool {
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' &&
		!strings.ContainsFunc(s,
			func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

func readDeadline(raw []byte, c *Conf) bool {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return false
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > 2*time.Minute {
		return false
	}
	c.Deadline = d
	return true
}
