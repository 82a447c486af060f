package manifest_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/manifest"
)

// changer changes pods at random, the same pod always in the same way, and remembers what it gave.
type changer struct {
	seed uint64
	made map[string]podtree.Object // by Where
}

func (c *changer) change(w manifest.Workload) (podtree.Object, error) {
	l := newLayout(rand.New(rand.NewPCG(c.seed, uint64(len(w.Where)))))
	if l.one(6) {
		return nil, nil
	}
	pod := podtree.Clone(w.Pod)
	if l.one(2) {
		pod, _ = sidecar(manifest.Workload{Pod: pod})
	}
	if pod == nil {
		return nil, nil
	}
	if l.one(2) {
		pod, _ = l.mutate(pod, 6).(podtree.Object)
	}
	if pod == nil || !sound(pod) {
		return nil, nil
	}
	for _, key := range []string{"name", "namespace", "generateName"} { // Where has them
		podtree.Delete(pod, "metadata", key)
		if old, ok := podtree.Map(w.Pod, "metadata")[key]; ok {
			podtree.Set(pod, old, "metadata", key)
		}
	}
	for key := range pod {
		if key != "metadata" && key != "spec" {
			delete(pod, key)
		}
	}
	c.made[w.Where] = asJSON(pod)
	return pod, nil
}

func asJSON(pod podtree.Object) podtree.Object {
	data, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	tree, err := podtree.Decode(data)
	if err != nil {
		panic(err)
	}
	return tree
}

// sound reports whether a pod is still found in its document, and has room for annotations.
func sound(pod podtree.Object) bool {
	if _, ok := podtree.Map(pod, "spec")["containers"]; !ok {
		return false
	}
	for _, path := range [][]string{{"metadata"}, {"metadata", "annotations"}} {
		if _, ok := podtree.Get(pod, path...).(podtree.Object); !ok &&
			podtree.Get(pod, path...) != nil {
			return false
		}
	}
	return true
}

// check says what must hold of any file that Rewrite takes. It reports whether it was changed, and
// whether with comments lost.
func check(t *testing.T, in string, seed uint64) (changed, wide bool) {
	t.Helper()
	c := &changer{seed, map[string]podtree.Object{}}
	out, err := manifest.Rewrite("f", []byte(in), "inject", c.change)
	if err != nil {
		return false, false
	}
	seen := map[string]podtree.Object{}
	look := func(w manifest.Workload) (podtree.Object, error) {
		pod := podtree.Clone(w.Pod)
		seen[w.Where] = pod
		return nil, nil
	}
	// A record hides the pod that was written from a Change, so it gets another name first.
	bare := strings.ReplaceAll(string(out.Data), manifest.Annotation, "test/replaced")
	if _, err := manifest.Rewrite("f", []byte(bare), "inject", look); err != nil {
		t.Fatalf("read what was written: %v\n%s", err, out.Data)
	}
	for where, pod := range c.made {
		got := seen[where]
		podtree.Delete(got, "metadata", "annotations", "test/replaced")
		if diff := cmp.Diff(filled(pod), filled(got)); diff != "" {
			t.Fatalf("%s is not as wanted (-want +got):\n%s\n%s", where, diff, out.Data)
		}
	}
	again, err := manifest.Rewrite("f", out.Data, "inject", c.change)
	if err != nil || string(again.Data) != string(out.Data) {
		t.Fatalf("twice is not once: %v (-once +twice)\n%s", err,
			cmp.Diff(string(out.Data), string(again.Data)))
	}
	back, err := manifest.Restore("f", out.Data, func(manifest.Workload) bool { return false })
	if err != nil || string(back.Data) != in {
		t.Fatalf("not the input again: %v (-input +got)\n%s", err,
			cmp.Diff(in, string(back.Data)))
	}
	return string(out.Data) != in, strings.Contains(strings.Join(out.Warnings, ""), "anew")
}

// filled has the mappings that a record needs.
func filled(pod podtree.Object) podtree.Object {
	podtree.Set(pod, "", "metadata", "annotations", "test/filled")
	return pod
}

func TestEveryLayoutIsEditedAndRestored(t *testing.T) {
	t.Parallel()
	runs := 1000
	if testing.Short() {
		runs = 200
	}
	read, changes, anew := 0, 0, 0
	for seed := range uint64(runs) {
		l := newLayout(rand.New(rand.NewPCG(seed, 1)))
		tree := l.object()
		text := l.document(tree)
		if data, err := json.MarshalIndent(tree, "", "\t"); err == nil && seed%8 == 0 {
			text = string(data) + "\n"
		}
		var got podtree.Object
		data, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			got, err = podtree.Decode(data)
		}
		if err != nil || !cmp.Equal(got, tree) {
			continue // the layout is at fault
		}
		read++
		changed, wide := check(t, text, seed)
		if changed {
			changes++
		}
		if wide {
			anew++
			t.Logf("seed %d: comments lost:\n%s", seed, text)
		}
	}
	t.Logf("of %d, %d read, %d changed, %d anew", runs, read, changes, anew)
	if read < runs*8/10 || changes < read/3 || anew > changes/50 {
		t.Errorf("of %d layouts %d are read, %d changed, %d written anew as a whole",
			runs, read, changes, anew)
	}
}

func FuzzRewrite(f *testing.F) {
	for _, seed := range []string{
		"kind: Pod\nspec:\n  containers:\n  - name: a\n    image: |\n      x\n  initContainers: [{name: istio-init}]\n",
		"kind: Deployment\nspec: {template: {spec: {containers: [{name: a, readinessProbe: {httpGet: {}}}]}}}\n",
		`{"kind":"List","items":[{"kind":"Pod","spec":{"containers":[{"name":"a"}]}}]}`,
		"a: &a {b: c}\nkind: Pod\nspec: &s\n  <<: *a\n  ? containers\n  : - *a\n---\nkind: X\n...\n",
		"kind: Pod\r\nspec:\r\n  containers:\r\n  -\r\n    name: a # b\r\nmetadata:\r\n",
		"%YAML 1.1\n---\nkind: Pod\nspec: {containers: }\n", "kind: Pod\nspec: !!map\n containers: - a",
		"\uFEFF{\"kind\": \"Pod\",\n\t\"spec\": {\n\t\t\"containers\": []\n}}{}",
	} {
		f.Add(seed, uint64(1))
		f.Add(seed, uint64(2))
	}
	for seed := range uint64(20) {
		l := newLayout(rand.New(rand.NewPCG(seed, 1)))
		f.Add(l.document(l.object()), seed)
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if strings.Contains(text, "sidecar-cni.io") {
			t.Skip("the changes would be those of an earlier one")
		}
		check(t, text, seed)
	})
}
