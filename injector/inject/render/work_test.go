package render

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// workOf is what executing a text takes.
func workOf(t *testing.T, text string) int {
	t.Helper()
	template, err := Parse("sidecar", text, Today, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := sample(t)
	large := strings.Repeat("x", 20*structPiece)
	data.ObjectMeta.Annotations = map[string]string{"a": large}
	data.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "a", Value: large}}
	r := &run{name: template.name, trees: template.trees, functions: template.functions}
	err = r.template(template.trees[sourceName], reflect.ValueOf(template.fields(data)))
	if err != nil {
		t.Fatal(err)
	}
	return r.work
}

// Everything that is executed counts, by the work that it is.
func TestWork(t *testing.T) {
	t.Parallel()
	const structure = 400 // at least, for the metadata's String
	const compared = 20 * structPiece / textPiece
	const variable = "{{ $e := index (index .Spec.Containers 0).Env 0 }}"
	declarations := strings.Repeat("{{ $x := 1 }}", 4*variablePiece)
	for _, test := range []struct {
		name, text, without string
		least, most         int
	}{
		{"a text is a node", "text", "", 1, 1},
		{"an action and its operand", "{{ 1 }}", "", 2, 2},
		{"each name of a path", "{{ $x := .Values.global.hub }}", "{{ $x := .Values }}", 2, 2},
		{"arguments", "{{ $x := eq 1 1 2 }}", "{{ $x := eq 1 1 }}", 1, 1},
		{"rounds", "{{ range 10 }}{{ end }}", "{{ range 0 }}{{ end }}", 10, 10},
		{"the keys of a map", "{{ range .Values }}{{ break }}{{ end }}",
			"{{ range 5 }}{{ break }}{{ end }}", 2, 100},
		{"the way to a variable", "{{ $y := 1 }}" + declarations + "{{ $x = $y }}",
			declarations + "{{ $y := 1 }}{{ $x = $y }}", 4, 4},
		{"the way to a variable that is set", "{{ $y := 1 }}" + declarations + "{{ $y = 1 }}",
			declarations + "{{ $y := 1 }}{{ $y = 1 }}", 4, 4},
		{"a getter", "{{ $x := .ProxyConfig.GetConcurrency }}", "{{ $x := .ProxyConfig.Concurrency }}",
			callWork, callWork},
		{"a method", "{{ $x := .ProxyConfig.ServiceCluster }}", "{{ $x := .ProxyConfig.Concurrency }}",
			methodWork, methodWork},
		{"String of what is large", "{{ $x := .ObjectMeta.String }}", "{{ $x := .ObjectMeta }}",
			methodWork + structure, methodWork + 2*structure},
		{"a structure that is printed", "{{ .ObjectMeta }}", "{{ 1 }}", structure, 2 * structure},
		{"a structure that becomes text", "{{ $x := print .ObjectMeta }}", "{{ $x := print 1 }}",
			structure, 2 * structure},
		{"structures that are sorted", "{{ $x := sortAlpha (list .ObjectMeta .ObjectMeta) }}",
			"{{ $x := sortAlpha (list 1 1) }}", 2 * structure, 4 * structure},
		{"structures that are compared", variable + "{{ $x := eq $e $e }}",
			variable + "{{ $x := eq 1 1 }}", compared, compared + 20},
		{"a deep comparison", "{{ $x := deepEqual 1 1 }}", "{{ $x := hasPrefix `a` `a` }}",
			equalWork, equalWork},
		{"a deep comparison of structures", "{{ $x := deepEqual .ObjectMeta .ObjectMeta }}",
			"{{ $x := deepEqual 1 1 }}", 2 * compared, 2*compared + 20},
		{"a search in a list", "{{ $x := has .ObjectMeta (list .ObjectMeta .ObjectMeta) }}",
			"{{ $x := has 1 (list 1 1) }}", 3 * compared, 3*compared + 20},
		{"a search in a list by the other name",
			"{{ $x := mustHas .ObjectMeta (list .ObjectMeta .ObjectMeta) }}",
			"{{ $x := mustHas 1 (list 1 1) }}", 3 * compared, 3*compared + 20},
	} {
		got := workOf(t, test.text)
		if test.without != "" {
			got -= workOf(t, test.without)
		}
		if got < test.least || got > test.most {
			t.Errorf("%s: got %d, want %d to %d", test.name, got, test.least, test.most)
		}
	}
}

func TestDepthOfCalls(t *testing.T) {
	t.Parallel()
	const text = "{{ define `a` }}{{ if gt . 1 }}{{ template `a` (add . -1) }}{{ end }}{{ end }}"
	mustExecute(t, text+"{{ template `a` 100 }}", Today, sample(t))
	if _, err := execute(t, text+"{{ template `a` 101 }}", Today, sample(t)); err == nil {
		t.Error("101 deep is no mistake")
	}
}

func TestMethodsThatPanic(t *testing.T) {
	t.Parallel()
	var proxy *mesh.ProxyConfig
	_, _, err := (&run{}).callMethod(reflect.ValueOf(proxy), "ServiceCluster")
	if err == nil || !strings.HasPrefix(err.Error(), "method ServiceCluster: does not accept what it is given: invalid memory address") {
		t.Errorf("got %v", err)
	}
}
