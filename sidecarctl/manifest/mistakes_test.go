package manifest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
)

const small = "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n"

func TestRewriteNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [" + strings.Repeat("x, ", 9) + "x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), c-1)
	}
	for name, row := range map[string]struct{ in, want string }{
		"no YAML":     {"a: b: c\n", "not valid YAML: mapping values are not allowed in this context"},
		"half a JSON": {`{"kind": "Pod"`, "not valid JSON: it ends in the middle of an object"},
		"no object":   {"hello\n", "it is a single value; want an object with apiVersion and kind"},
		"a list":      {"- a\n", "it is a list; want an object with apiVersion and kind"},
		"a key twice": {small + "kind: Pod\n", "line 6: key kind is there twice; keep one of them"},
		"a key twice beside a merge": {"a: &a {x: y}\nb: {<<: *a, x: z, x: w}\n",
			"line 2: key x is there twice; keep one of them"},
		"twice in JSON": {`{"kind": "Pod", "kind": "Pod"}`, `duplicate field "kind"; keep one of them`},
		"a template":    {"kind: {{ .Kind }}\n", "not valid YAML: invalid map key: map[interface {}]interface {}{\".Kind\":interface {}(nil)}; a template of a chart has to be rendered first, by helm template"},
		"a template from its first line": {"{{- if .Values.on }}\nkind: Pod\n{{- end }}\n",
			"not valid YAML: did not find expected node content; a template of a chart has to be rendered first, by helm template"},
		"a mistake in the second object": {"\n{\"a\": 1}\n\n{\"b\": }\n",
			"not valid JSON: in the object that begins at line 4: invalid character '}' looking for beginning of value"},
		"not UTF-8":      {"kind: \xff\n", "it is not UTF-8 text; convert it"},
		"an alias bomb":  {bomb, "with its aliases expanded it is larger than 32 MiB; write it without aliases"},
		"an endless one": {"a: &a [*a]\n", "with its aliases expanded it is larger than 32 MiB; write it without aliases"},
		"many aliases in many documents": {strings.Repeat("---\na: &a "+strings.Repeat("x", 1<<20)+
			"\nb: ["+strings.Repeat("*a, ", 29)+"]\n", 3), "document 3, with its aliases " +
			"expanded it is larger than 32 MiB; write it without aliases"},
		"too deep":       {"a: " + strings.Repeat("[", 600) + strings.Repeat("]", 600), "it is nested deeper than 500 levels; no manifest is"},
		"too deep, JSON": {`{"a": ` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "}", "it is nested deeper than 500 levels; no manifest is"},
		"too large":      {strings.Repeat("# comment\n", 4<<20), "it is larger than 32 MiB; split it"},
		"a shared part": {"kind: Pod\nmetadata: &m {name: a}\nspec: {containers: []}\nx: *m\n",
			"Pod a: it cannot be edited as it is written, perhaps since others use an anchor (&) in it; write it as plain YAML, without anchors"},
		"a shared part in one of two": {"kind: List\nitems:\n- kind: Pod\n  metadata: {name: a}\n" +
			"  spec: {containers: []}\n- kind: Pod\n  metadata: &m {name: b}\n" +
			"  spec: {containers: []}\n  x: *m\n",
			"items[1], Pod b: it cannot be edited as it is written, perhaps since others use an " +
				"anchor (&) in it; write it as plain YAML, without anchors"},
		"odd annotations": {"kind: Deployment\nspec: {template: {metadata: [], spec: {containers: []}}}\n",
			"Deployment, spec.template: metadata: want a mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := manifest.Rewrite("in.yaml", []byte(row.in), "inject", mark)
			if err == nil || err.Error() != `change "in.yaml": `+row.want || out.Data != nil {
				t.Errorf("error:\n%v\nwant:\n%s", err, row.want)
			}
		})
	}
}

// mark changes an annotation, if there can be one.
func mark(w manifest.Workload) (podtree.Object, error) {
	if meta := w.Pod["metadata"]; meta == nil || podtree.Map(w.Pod, "metadata") != nil {
		podtree.Set(w.Pod, "x", "metadata", "annotations", "a")
	} else {
		podtree.Set(w.Pod, "x", "spec", "x")
	}
	return w.Pod, nil
}

func TestMistakesOfAllDocumentsComeAtOnce(t *testing.T) {
	t.Parallel()
	cause := errors.New("no")
	in := small + "---\n- x\n---\n" + strings.Replace(small, "name: a}", "name: b, namespace: ns}", 1)
	_, err := manifest.Rewrite("f", []byte(in), "inject", func(w manifest.Workload) (podtree.Object, error) {
		return nil, fmt.Errorf("inject %s: %w", w.Where, cause)
	})
	want := `change "f": document 1, Pod a: inject document 1, Pod a: no
change "f": document 2, it is a list; want an object with apiVersion and kind
change "f": document 3, Pod ns/b: inject document 3, Pod ns/b: no`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" || !errors.Is(err, cause) {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRestoreRefusesWhatAnotherToolFilled(t *testing.T) {
	t.Parallel()
	in := small + "  - name: istio-proxy\n---\n" + string(rewrite(t, web).Data)
	_, err := manifest.Restore("f", []byte(in), hasProxy)
	want := `restore "f": document 1, Pod a: it was filled by another tool, or without annotation ` +
		manifest.Annotation + "; take the file that it was made of"
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if out := restore(t, []byte(small)); string(out.Data) != small {
		t.Errorf("a pod that nobody filled became\n%s", out.Data)
	}
}

func TestWhatStaysAsItIsHasNoRecord(t *testing.T) {
	t.Parallel()
	for _, change := range []manifest.Change{
		func(manifest.Workload) (podtree.Object, error) { return nil, nil },
		func(w manifest.Workload) (podtree.Object, error) { return w.Pod, nil },
	} {
		out, err := manifest.Rewrite("f", []byte(web), "inject", change)
		if err != nil || string(out.Data) != web {
			t.Errorf("%v\n%s", err, out.Data)
		}
	}
}

func TestARecordThatIsTooLongIsLeftOut(t *testing.T) {
	t.Parallel()
	var env strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&env, "    - {name: istio-init-%d, value: \"%x\"}\n", i, uint32(i+7)*2654435761)
	}
	for name, env := range map[string]string{
		"packed":   env.String(),
		"unpacked": "    - {name: a, value: " + strings.Repeat("v", 1<<20) + "}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leftOut(t, env)
		})
	}
}

func leftOut(t *testing.T, env string) {
	t.Helper()
	in := "kind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(small), "\n", "\n  ") +
		"\n- kind: Pod\n  metadata: {name: big}\n  spec:\n    containers: [{name: b}]\n    initContainers:\n    - name: istio-init\n      env:\n" +
		strings.ReplaceAll(env, "    - ", "      - ")
	out := rewrite(t, in)
	want := []string{"items[1], Pod big: what was replaced is longer than 32 KiB: there is no " +
		"annotation " + manifest.Annotation + ", so uninject cannot undo this; keep the file"}
	if diff := cmp.Diff(want, out.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if n := strings.Count(string(out.Data), manifest.Annotation); n != 1 {
		t.Errorf("%d records, want that of the other pod\n", n)
	}
}

func TestLargeFiles(t *testing.T) {
	t.Parallel()
	var env strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&env, "        - name: N%d\n          value: %q\n", i, strings.Repeat("v", 90))
	}
	pod := strings.Replace(web, "        readiness", "        env:\n"+env.String()+"        readiness", 1)
	for name, in := range map[string]string{
		"a thousand documents": strings.Repeat("---\n"+web, 1000),
		"a thousand items": "kind: List\nitems:\n- " + strings.Repeat(strings.ReplaceAll(
			strings.TrimSpace(web), "\n", "\n  ")+"\n- ", 1000) + "kind: X\n",
		"ten thousand variables": pod,
		"thousands of items on one line": `{"kind":"List","items":[` + strings.TrimSuffix(strings.Repeat(
			`{"kind":"Pod","spec":{"containers":[{"name":"a"}]}},`, 3000), ",") + "]}",
		"all on one line": `{"kind":"Pod","spec":{"containers":[{"name":"a","env":[` + strings.Repeat(`{"name":"a"},`, 20000) + `{}]}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			out := rewrite(t, in)
			if string(out.Data) == in || string(restore(t, out.Data).Data) != in {
				t.Error("not changed, or not restored")
			}
		})
	}
}

// What is too large to be read again could be neither injected a second time nor undone.
func TestRewriteDoesNotWriteWhatItCannotReadAgain(t *testing.T) {
	t.Parallel()
	in := strings.Repeat("#", 32<<20-1-len(small)) + "\n" + small
	out, err := manifest.Rewrite("in.yaml", []byte(in), "inject", mark)
	want := `change "in.yaml": with what is put in it is larger than 32 MiB; split it`
	if err == nil || err.Error() != want || out.Data != nil {
		t.Errorf("%v, %d bytes; want %s", err, len(out.Data), want)
	}
}
