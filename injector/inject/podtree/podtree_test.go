package podtree_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

func decode(t *testing.T, text string) podtree.Object {
	t.Helper()
	tree, err := podtree.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestReading(t *testing.T) {
	t.Parallel()
	tree := decode(t, `{"metadata": {"labels": {"app": "web", "n": 1}}, "spec": {"priority": 7,
		"containers": [null, "x", {"name": "app"}]}}`)
	for name, is := range map[string]bool{
		"a whole number":       podtree.Get(tree, "spec", "priority") == int64(7),
		"beyond a number":      podtree.Get(tree, "spec", "priority", "x") == nil,
		"nothing there":        podtree.Get(tree, "status", "phase") == nil,
		"no object":            podtree.Map(tree, "spec", "priority") == nil,
		"no list":              podtree.List(tree, "spec", "priority") == nil,
		"no text":              podtree.String(tree, "spec", "priority") == "",
		"a text":               podtree.String(tree, "metadata", "labels", "app") == "web",
		"among other items":    podtree.Named(podtree.List(tree, "spec", "containers"), "app") == 2,
		"not among the items":  podtree.Named(podtree.List(tree, "spec", "containers"), "x") == -1,
		"no object of texts":   podtree.Strings(tree, "spec", "nodeSelector") == nil,
		"texts without others": cmp.Equal(podtree.Strings(tree, "metadata", "labels"), map[string]string{"app": "web"}),
	} {
		if !is {
			t.Errorf("%s: not so in %v", name, tree)
		}
	}
	for _, text := range []string{"", "null", "[]", `"x"`, "{", `{"a": 1} {}`} {
		if tree, err := podtree.Decode([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, tree)
		}
	}
}

func TestWriting(t *testing.T) {
	t.Parallel()
	tree := decode(t, `{"metadata": "odd", "unknown": {"x": 1.5}}`)
	clone := podtree.Clone(tree)
	podtree.Set(tree, "true", "metadata", "annotations", "key")
	podtree.Set(tree, "false", "metadata", "annotations", "other")
	podtree.Delete(tree, "metadata", "annotations", "other")
	podtree.Delete(tree, "spec", "containers")
	podtree.Delete(tree, "unknown", "x", "y")
	want := decode(t, `{"metadata": {"annotations": {"key": "true"}}, "unknown": {"x": 1.5}}`)
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(decode(t, `{"metadata": "odd", "unknown": {"x": 1.5}}`), clone); diff != "" {
		t.Errorf("the clone has changed (-want +got):\n%s", diff)
	}
	var pod corev1.Pod
	if err := podtree.Into(tree, &pod); err != nil || pod.Annotations["key"] != "true" {
		t.Errorf("%v, %v", pod.Annotations, err)
	}
	if err := podtree.Into(clone, &pod); err == nil {
		t.Error("metadata that is a text is read")
	}
}
