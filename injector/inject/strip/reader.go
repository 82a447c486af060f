package strip

import (
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

// reader reads a container's command line as the kubelet makes it.
type reader struct {
	env     map[string]string
	hidden  map[string]bool // variables whose value only the kubelet will know
	reasons []string
	left    int // how much more text may come of variables in variables
}

// maxExpanded bounds the text of a command line and its variables. Variables that name variables
// can come to more than any memory holds.
const maxExpanded = 2 << 20

func newReader() *reader {
	return &reader{env: map[string]string{}, hidden: map[string]bool{}, left: maxExpanded}
}

func (r *reader) refuse(format string, args ...any) {
	r.reasons = append(r.reasons, reason(format, args...))
}

// list returns what should be a list.
func (r *reader) list(c podtree.Object, key string) []any {
	list, ok := c[key].([]any)
	if !ok && c[key] != nil {
		r.refuse("%s: want a list", key)
	}
	return list
}

// readEnv reads the variables. Of several with one name the last counts, and each can name those in
// front of it.
func (r *reader) readEnv(c podtree.Object) {
	for i, item := range r.list(c, "env") {
		one, _ := item.(podtree.Object)
		name, _ := one["name"].(string)
		value, ok := text(one["value"])
		if name == "" || one["value"] != nil && !ok {
			r.refuse("env[%d]: want an object with a name and a value that is a text", i)
			continue
		}
		value, hidden := r.expand(value)
		r.hidden[name] = hidden != "" || one["valueFrom"] != nil
		if !r.hidden[name] {
			r.env[name] = value
		}
	}
	for _, name := range sortedKeys(r.hidden) {
		if r.hidden[name] && initflags.IsVariable(name) {
			r.refuse("env %q has a value that only the node will know, by valueFrom: istio-init "+
				"obeys it: write the value", name)
		}
	}
	if len(r.list(c, "envFrom")) > 0 {
		r.refuse("envFrom may set any variable that istio-init obeys: write them into env")
	}
}

// texts reads a list of texts, such as the arguments.
func (r *reader) texts(c podtree.Object, key string) []string {
	var all []string
	for i, item := range r.list(c, key) {
		word, ok := text(item)
		if !ok {
			r.refuse("%s[%d]: want a text", key, i)
			continue
		}
		word, hidden := r.expand(word)
		if hidden != "" {
			r.refuse("%s[%d] names the variable %q, whose value only the node will know, by "+
				"valueFrom: write the value", key, i, hidden)
		}
		all = append(all, word)
	}
	return all
}

// text returns a scalar as it was written: templates of early releases have ports without quotes.
func text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// expand puts values in place of $(NAME), as the kubelet does: $$ is a $, and a name that is not
// known stays as it is. It returns the last name that is known to the kubelet alone.
func (r *reader) expand(s string) (out, unknown string) {
	var b strings.Builder
	closed := true // once there is no ) behind a $(, there is none behind the next one either
	for b.Len() <= r.left {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		var name, behind string
		reference := strings.HasPrefix(rest, "(")
		if reference && closed {
			name, behind, closed = strings.Cut(rest[1:], ")")
		}
		switch {
		case !found:
			r.left -= b.Len()
			return b.String(), unknown
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case !reference || !closed:
			b.WriteByte('$')
			s = rest
		default:
			value, known := r.env[name]
			if !known {
				value = "$(" + name + ")"
			}
			if r.hidden[name] {
				unknown = name
			}
			b.WriteString(value)
			s = behind
		}
	}
	r.left = -1
	return "", unknown
}
