package podtree_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
	"github.com/sidecar-cni/sidecar-cni/test/podgen"
)

// checkInto compares what a tree is read as with what its JSON is read as.
func checkInto[T any](t *testing.T, tree podtree.Object) {
	t.Helper()
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var want, got T
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts(data, &want)
	err = podtree.Into(tree, &got)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("error %v, want %v: %s", err, wantErr, data)
	}
	if err == nil && !reflect.DeepEqual(want, got) {
		t.Errorf("%s is read as\n%#v\nwant\n%#v", data, got, want)
	}
	if size := podtree.MaxSize(tree); size < len(data) {
		t.Errorf("%d bytes, at most %d expected: %s", len(data), size, data)
	}
}

// A pod is read as its JSON is, whatever is unusual about it.
func TestInto(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		pod := podgen.Pod(rand.New(rand.NewPCG(seed, 1)))
		checkInto[corev1.Pod](t, pod)
		checkInto[kubepod.Pod](t, pod)
	}
	for name, fields := range map[string]podtree.Object{
		"null lists":      {"containers": nil, "initContainers": []any(nil)},
		"null object":     {"securityContext": podtree.Object(nil)},
		"a large user":    {"securityContext": podtree.Object{"runAsUser": int64(1) << 40}},
		"a large port":    container("ports", []any{podtree.Object{"containerPort": int64(1) << 40}}),
		"a number":        container("name", int64(1)),
		"a text":          {"containers": "x"},
		"a null item":     {"containers": []any{nil}},
		"a whole float":   {"priority": 1.0},
		"a fraction":      {"priority": 1.5},
		"a huge number":   {"priority": math.MaxFloat64},
		"no UTF-8":        container("name", "\xff"),
		"quantities":      container("resources", podtree.Object{"limits": podtree.Object{"cpu": "1", "memory": int64(5)}}),
		"no quantity":     container("resources", podtree.Object{"limits": podtree.Object{"cpu": "x"}}),
		"a port by name":  probe("http"),
		"a port":          probe(int64(80)),
		"no port":         probe(true),
		"unknown":         {"someday": podtree.Object{"a": []any{int64(1)}}},
		"in other case":   {"CONTAINERS": []any{podtree.Object{"NAME": "a"}}},
		"escaped in JSON": container("name", "<\u2028\x00&>"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkInto[corev1.Pod](t, podtree.Object{"spec": fields})
			checkInto[kubepod.Pod](t, podtree.Object{"spec": fields})
		})
	}
}

// container is a spec with one, that has a field.
func container(field string, value any) podtree.Object {
	return podtree.Object{"containers": []any{podtree.Object{field: value}}}
}

func probe(port any) podtree.Object {
	return container("livenessProbe", podtree.Object{"httpGet": podtree.Object{"port": port}})
}

// What comes out does not depend on what was there.
func TestIntoForgetsWhatWasThere(t *testing.T) {
	t.Parallel()
	got := corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}
	tree := podtree.Object{"spec": podtree.Object{"priority": 1.0}}
	if err := podtree.Into(tree, &got); err != nil {
		t.Fatal(err)
	}
	want := corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(1))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzInto(f *testing.F) {
	for seed := range uint64(8) {
		data, err := json.Marshal(podgen.Pod(rand.New(rand.NewPCG(seed, 2))))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"metadata":{"creationTimestamp":"x","managedFields":[{"fieldsV1":{"a":1}}]}}`))
	f.Add([]byte(`{"spec":{"containers":[{"ports":[{"containerPort":99999999999}]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := podtree.Decode(data)
		if err != nil {
			return
		}
		checkInto[corev1.Pod](t, tree)
		checkInto[kubepod.Pod](t, tree)
	})
}
