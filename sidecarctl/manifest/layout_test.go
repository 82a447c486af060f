package manifest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// layout writes a tree as YAML in one of the many ways that people do.
type layout struct {
	*rand.Rand
	strings.Builder
	indent, dash, spaces int
	anchors              int
}

func (l *layout) one(of int) bool { return l.IntN(of) == 0 }

func newLayout(r *rand.Rand) *layout {
	return &layout{Rand: r, indent: 1 + r.IntN(4), dash: r.IntN(4), spaces: 1 + r.IntN(3)}
}

// document writes a whole document.
func (l *layout) document(tree podtree.Object) string {
	if l.one(3) {
		l.WriteString("# before\n")
	}
	if l.one(2) {
		l.WriteString("---\n")
	}
	if l.one(8) {
		l.flow(tree)
	} else {
		l.block(tree, 0)
	}
	l.noise(0)
	text := strings.TrimLeft(l.String(), "\n") + "\n"
	if l.one(4) {
		text += "# behind\n\n"
	}
	if l.one(4) {
		text = strings.TrimRight(text, "\n")
	}
	if l.one(4) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// noise writes a comment or an empty line, or neither.
func (l *layout) noise(column int) {
	switch l.IntN(12) {
	case 0:
		l.WriteString("\n")
	case 1:
		l.WriteString("\n" + strings.Repeat(" ", l.IntN(column+3)) + "# it's: a {comment}")
	}
}

func (l *layout) newline(column int) {
	l.noise(column)
	l.WriteString("\n" + strings.Repeat(" ", column))
}

// block writes a collection that is not empty, from the column on which it starts.
func (l *layout) block(value any, column int) {
	switch value := value.(type) {
	case podtree.Object:
		for i, key := range l.keys(value) {
			if i > 0 {
				l.newline(column)
			}
			l.scalar(key, true, column)
			l.WriteString(strings.Repeat(" ", l.IntN(8)/7) + ":")
			l.value(value[key], column, false)
		}
	case []any:
		for i, item := range value {
			if i > 0 {
				l.newline(column)
			}
			l.WriteString("-")
			l.value(item, column, true)
		}
	}
}

func (l *layout) keys(o podtree.Object) []string {
	keys := make([]string, 0, len(o))
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	l.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// value writes what is behind a colon or a dash.
func (l *layout) value(value any, column int, item bool) {
	object, isObject := value.(podtree.Object)
	list, isList := value.([]any)
	anchor := ""
	if l.one(15) {
		l.anchors++
		anchor = fmt.Sprintf(" &a%d", l.anchors)
	}
	switch {
	case len(object)+len(list) == 0 || (isObject || isList) && l.one(5):
		l.WriteString(anchor + strings.Repeat(" ", l.spaces))
		if value == nil && l.one(2) && anchor == "" {
		} else if isObject || isList {
			l.flow(value)
		} else {
			l.scalar(value, false, column)
		}
		if l.one(6) {
			l.WriteString("\t# 'end")
		}
	case item && l.one(2) && anchor == "":
		l.WriteString(strings.Repeat(" ", l.spaces))
		l.block(value, column+1+l.spaces)
	default:
		l.WriteString(anchor)
		if l.one(6) {
			l.WriteString("  # \"above")
		}
		within := column + l.indent
		if isList && !item {
			within = column + l.dash
		}
		l.newline(within)
		l.block(value, within)
	}
}

func (l *layout) flow(value any) {
	comma := func(i int) {
		if i > 0 {
			l.WriteString("," + []string{" ", " ", "\n             ", " # c\n              "}[l.IntN(4)])
		}
	}
	switch value := value.(type) {
	case podtree.Object:
		l.WriteString("{" + strings.Repeat(" ", l.IntN(2)))
		for i, key := range l.keys(value) {
			comma(i)
			l.WriteString(strconv.Quote(key) + ": ")
			l.flow(value[key])
		}
		l.WriteString("}")
	case []any:
		l.WriteString("[")
		for i, item := range value {
			comma(i)
			l.flow(item)
		}
		if len(value) > 0 && l.one(4) {
			l.WriteString(",")
		}
		l.WriteString("]")
	case string:
		l.WriteString(strconv.Quote(value))
	default:
		fmt.Fprint(l, strings.ReplaceAll(fmt.Sprint(value), "<nil>", "null"))
	}
}

// scalar writes a string in a form that has room for it, or another scalar.
func (l *layout) scalar(value any, key bool, column int) {
	s, ok := value.(string)
	if !ok {
		fmt.Fprint(l, strings.ReplaceAll(fmt.Sprint(value), "<nil>", "~"))
		return
	}
	word := strings.IndexFunc(s, func(r rune) bool { return r < 'a' || r > 'z' }) < 0
	printed := strings.Trim(s, "\n ") == s && !strings.Contains(s, "\n\n")
	in := strings.Repeat(" ", column+l.indent+1)
	switch choice := l.IntN(6); {
	case choice < 3 && word && s != "" && s != "on" && s != "null":
		l.WriteString(s)
	case choice == 0 && printed && !strings.Contains(s, "\n"):
		l.WriteString("'" + strings.ReplaceAll(s, "'", "''") + "'")
	case choice == 1 && !key && strings.HasSuffix(s, "\n") && printed != (s == "\n"):
	case choice == 2 && !key && strings.Contains(s, "\n") && !strings.HasPrefix(s, " ") &&
		!strings.HasPrefix(s, "\n"):
		chomp := []string{"-", "", "+"}[min(2, len(s)-len(strings.TrimRight(s, "\n")))]
		l.WriteString("|" + chomp + []string{"", "  # c"}[l.IntN(2)])
		for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
			l.WriteString("\n" + in + line)
		}
	case choice == 3 && !key && strings.Count(s, " ") == 1 && printed && s[0] >= 'a' &&
		!strings.ContainsAny(s, "#:\n'\""):
		l.WriteString(strings.ReplaceAll(s, " ", "\n"+in))
	default:
		l.WriteString(strconv.Quote(s))
	}
}
