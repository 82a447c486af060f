package render

import (
	"strings"
	"testing"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	const set = `is looked up in what is not set: set it, or ask for it with "if" or "with" first`
	const structure = "a structure cannot be printed: name one of its fields, or use toYaml or " +
		"structToJSON"
	tests := []struct {
		name, text, want string
	}{
		{"unknown function", "\n{{ foo }}",
			`line 2: there is no function "foo"; docs/inject.md lists them`},
		{"no end", "{{ if true }}", `line 1: the text ends within an action: ` +
			`every if, range, with and define wants its end`},
		{"no closing braces", "{{ if", `line 1: unclosed action`},
		{"defined twice", `{{ define "a" }}x{{ end }}{{ define "a" }}y{{ end }}`,
			`line 1: multiple definition of template "a"`},
		{"undefined template", "\n{{ if .Revision }}{{ template `a` }}{{ end }}",
			`line 2: there is no template "a": want a define of that name`},
		{"all templates at once", "{{ template `b` }}\n{{ template `a` }}",
			`line 1: there is no template "b": want a define of that name` +
				"\ntemplate \"sidecar\", line 2: there is no template \"a\": want a " +
				"define of that name"},
		{"a method that changes what it belongs to", "{{ .ProxyConfig.Reset }}",
			`line 1: .ProxyConfig.Reset: there is no field "Reset"; docs/inject.md lists the fields`},
		{"unknown field", "{{ .Foo }}",
			`line 1: .Foo: there is no field "Foo"; docs/inject.md lists the fields`},
		{"unknown field below", "{{ .ObjectMeta.Foo.Bar }}",
			`line 1: .ObjectMeta.Foo.Bar: there is no field "Foo"; docs/inject.md lists the fields`},
		{"looking into what is not set", "{{ if .Values.global.proxy.resources.limits.cpu }}{{ end }}",
			`line 1: .Values.global.proxy.resources.limits.cpu: "cpu" ` + set},
		{"printing what is not set", "{{ .Values.unset }}",
			`line 1: .Values.unset is not set: set it, or give a default`},
		{"printing a pointer that is not set", "{{ .Spec.SecurityContext }}",
			`line 1: .Spec.SecurityContext is not set: set it, or give a default`},
		{"printing a structure", "{{ .Spec.Containers }}",
			"line 1: .Spec.Containers: " + structure},
		{"printing a list of structures by print", "{{ print .Spec.Volumes .Spec.Containers }}",
			"line 1: function print: " + structure},
		{"printing structures within a list", "{{ list (list .Spec.Containers) | quote }}",
			"line 1: function quote: " + structure},
		{"printing a message", "{{ .MeshConfig.DefaultConfig }}",
			"line 1: .MeshConfig.DefaultConfig: " + structure},
		{"printing a message that is a duration", "{{ .ProxyConfig.DrainDuration }}",
			"line 1: .ProxyConfig.DrainDuration: " + structure},
		{"a message as text", "{{ quote .MeshConfig.DefaultConfig }}",
			"line 1: function quote: " + structure},
		{"a message's String", "{{ .ProxyConfig.GetTracing.String }}",
			"line 1: method String: " + structure},
		{"an address", "{{ printf `%5p` .Values }}",
			"line 1: function printf: has no verb %p: addresses are not the same twice"},
		{"an address behind a percent sign", "{{ printf `%5%%p` list }}",
			"line 1: function printf: has no verb %p: addresses are not the same twice"},
		{"an address behind a verb that there is not", "{{ printf `%]%p` list }}",
			"line 1: function printf: has no verb %p: addresses are not the same twice"},
		{"a structure as key", "{{ dict .MeshConfig 1 }}",
			"line 1: function dict: want text as key 1"},
		{"wrong number of arguments", "{{ annotation .ObjectMeta }}",
			"line 1: annotation: wrong number of args for annotation: want 3 got 1; " +
				"docs/inject.md has each function's arguments"},
		{"wrong type", "{{ toLower 1 }}", "line 1: 1: want a value of type string, got the number 1"},
		{"a pointer that is not set", "{{ toLower .Spec.RuntimeClassName }}",
			"line 1: .Spec.RuntimeClassName: want a value of type string, got a pointer that is not set"},
		{"a variable that was never declared", "{{ $x = 1 }}",
			"line 1: there is no variable $x: declare it with :="},
		{"an argument of what is no function", "{{ .Revision 1 }}",
			"line 1: .Revision: is no function: it takes no arguments"},
		{"a range over a number with two variables", "{{ range $i, $v := 3 }}{{ end }}",
			"line 1: $i, $v := 3: a range over a number has one variable"},
		{"a length of what has none", "{{ len 1 }}",
			"line 1: len 1: function len: want text, a list or a map, got int"},
		{"an index of a wrong type", "{{ index .Spec.Containers `a` }}",
			"line 1: index .Spec.Containers `a`: function index: want a number as index, got string"},
		{"a key of a wrong type", "{{ index .Values 1 }}",
			"line 1: index .Values 1: function index: want a key of type string, got int"},
		{"wrong type of a value", "{{ toLower .ProxyUID }}",
			"line 1: .ProxyUID: want a value of type string, got int64"},
		{"comparing text with a number", "{{ if eq .Revision 1 }}{{ end }}",
			"line 1: function eq: cannot compare string with int"},
		{"ordering what has no order", "{{ if lt .Values.unset 1 }}{{ end }}",
			"line 1: function lt: cannot compare what is not set with int"},
		{"comparing one", "{{ if eq 1 }}{{ end }}",
			"line 1: eq: wrong number of args for eq: want at least 2 got 1; " +
				"docs/inject.md has each function's arguments"},
		{"comparing maps", "{{ if eq (dict) (dict) }}{{ end }}",
			"line 1: function eq: cannot compare map[string]interface {} with " +
				"map[string]interface {}"},
		{"out of range", "{{ index .Spec.Containers 9 }}",
			"line 1: index .Spec.Containers 9: function index: index out of range: 9"},
		{"an index into what is not set", "{{ index .Values.unset `a` }}",
			"line 1: index .Values.unset `a`: looks into what is not set: set it, or ask for it " +
				`with "if" or "with" first`},
		{"a long cause", "{{ fail (repeat 600 `x`) }}",
			"line 1: function fail: " + strings.Repeat("x", 485) + "..."},
		{"nothing to range over", "{{ range .Revision }}{{ end }}",
			"line 1: .Revision: want a list, a map or a number to range over, got string"},
		{"a function that fails", "{{ fail `no image` }}", "line 1: function fail: no image"},
		{"a function that panics", "{{ div 1 0 }}",
			"line 1: function div: does not accept what it is given: integer divide by zero"},
		{"a function that panics on purpose", "{{ append (dict) 1 }}",
			"line 1: function append: does not accept what it is given: Cannot push on type map"},
		{"JSON that is none", "{{ fromJSON `{` }}",
			"line 1: function fromJSON: want JSON: unexpected end of JSON input"},
		{"networks that are no JSON", "{{ appendMultusNetwork `[{]` `a` }}",
			`line 1: function appendMultusNetwork: read the networks "[{]": want a list in JSON: ` +
				"invalid character ']' looking for beginning of object key string"},
		{"a duration that is none", "{{ formatDuration 1 }}",
			"line 1: function formatDuration: want a duration, got int"},
		{"omit of text", "{{ omit `a` }}", "line 1: function omit: want a map, got string"},
		{"isset of text", "{{ isset `a` `b` }}",
			"line 1: function isset: want a map and a key, got string"},
		{"merging the mesh's own", "{{ merge (dict `a` .MeshConfig) (dict) }}",
			"line 1: function merge: want a map of text, numbers, lists and maps"},
		{"in a template that is called",
			"{{ define `a` }}\n{{ .x.y }}{{ end }}{{ template `a` (dict `x` nil) }}",
			`line 2: .x.y: "y" ` + set},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := sample(t)
			out, err := execute(t, test.text, Today, data)
			if want := `template "sidecar", ` + test.want; err == nil || err.Error() != want {
				t.Errorf("%s\n got %q, %v\nwant %s", test.text, out, err, want)
			}
		})
	}
}
