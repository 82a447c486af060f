package patch_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4" // by which the API server applies patches

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/strip"
	"github.com/sidecar-cni/sidecar-cni/injector/patch"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/podgen"
)

func decode(t testing.TB, text string) podtree.Object {
	t.Helper()
	o, err := podtree.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

func encode(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func between(t testing.TB, before, after podtree.Object) string {
	t.Helper()
	text, err := patch.Between(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBetween(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ before, after, want string }{
		"nothing changed": {
			before: `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a"}]}}`,
			after:  `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a"}]}}`,
		},
		"annotations key by key": {
			before: `{"metadata":{"annotations":{"a":"1","b":"2","c":"3"}}}`,
			after:  `{"metadata":{"annotations":{"a":"1","b":"4","d":"5"}}}`,
			want: `[{"op":"replace","path":"/metadata/annotations/b","value":"4"},` +
				`{"op":"remove","path":"/metadata/annotations/c"},` +
				`{"op":"add","path":"/metadata/annotations/d","value":"5"}]`,
		},
		"the first annotation": {
			before: `{"metadata":{}}`,
			after:  `{"metadata":{"annotations":{"a":"1"}}}`,
			want:   `[{"op":"add","path":"/metadata/annotations","value":{"a":"1"}}]`,
		},
		"annotations that were null": {
			before: `{"metadata":{"annotations":null}}`,
			after:  `{"metadata":{"annotations":{"a":"1"}}}`,
			want:   `[{"op":"replace","path":"/metadata/annotations","value":{"a":"1"}}]`,
		},
		"no metadata at all": {
			before: `{"spec":{}}`,
			after:  `{"metadata":{"labels":{"a":"1"}},"spec":{}}`,
			want:   `[{"op":"add","path":"/metadata","value":{"labels":{"a":"1"}}}]`,
		},
		"names with / and ~": {
			before: `{"metadata":{"labels":{"x/y":"1"}}}`,
			after:  `{"metadata":{"labels":{"~1/~0":"2"}}}`,
			want: `[{"op":"remove","path":"/metadata/labels/x~1y"},` +
				`{"op":"add","path":"/metadata/labels/~01~1~00","value":"2"}]`,
		},
		"a list of the spec as a whole": {
			before: `{"spec":{"containers":[{"name":"a","image":"i"}],"hostPID":true}}`,
			after:  `{"spec":{"containers":[{"name":"a","image":"i"},{"name":"b"}],"hostPID":true}}`,
			want: `[{"op":"replace","path":"/spec/containers",` +
				`"value":[{"image":"i","name":"a"},{"name":"b"}]}]`,
		},
		"a list that is gone": {
			before: `{"spec":{"initContainers":[{"name":"a"}]}}`,
			after:  `{"spec":{}}`,
			want:   `[{"op":"remove","path":"/spec/initContainers"}]`,
		},
		"an object of the spec as a whole": {
			before: `{"spec":{"securityContext":{"runAsUser":1}}}`,
			after:  `{"spec":{"securityContext":{"runAsUser":2}}}`,
			want:   `[{"op":"replace","path":"/spec/securityContext","value":{"runAsUser":2}}]`,
		},
		"a field that is null now": {
			before: `{"spec":{"volumes":[]}}`,
			after:  `{"spec":{"volumes":null}}`,
			want:   `[{"op":"replace","path":"/spec/volumes","value":null}]`,
		},
		"a new field that is null": {
			before: `{"spec":{}}`,
			after:  `{"spec":{"volumes":null}}`,
			want:   `[{"op":"add","path":"/spec/volumes","value":null}]`,
		},
		"what neither inject nor strip changes": {
			before: `{"kind":"Pod","status":{"phase":"Pending"}}`,
			after:  `{"status":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := between(t, decode(t, row.before), decode(t, row.after))
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A tree is of JSON; what is not has no patch.
func TestWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	_, err := patch.Between(podtree.Object{}, podtree.Object{"spec": func() {}})
	if err == nil || !strings.HasPrefix(err.Error(), "write JSON patch: ") {
		t.Errorf("error %v", err)
	}
}

// check applies the patch as the API server does. What comes out is the second pod.
func check(t *testing.T, before, after podtree.Object) {
	t.Helper()
	text := between(t, before, after)
	got := encode(t, before)
	if text != "" {
		decoded, err := jsonpatch.DecodePatch([]byte(text))
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		applied, err := decoded.Apply([]byte(got))
		if err != nil {
			t.Fatalf("%v: %s\nto %s", err, text, got)
		}
		got = string(applied)
	}
	if diff := cmp.Diff(decode(t, encode(t, after)), decode(t, got)); diff != "" {
		t.Errorf("%s\nyields (-want +got):\n%s", text, diff)
	}
	if (text == "") != cmp.Equal(before, after) {
		t.Errorf("the patch is %q, and the pods differ so:\n%s", text, cmp.Diff(before, after))
	}
}

func injection(t testing.TB) *config.Config {
	t.Helper()
	name := filepath.Join("..", "inject", "render", "testdata", "istio-1.1.yaml")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Sources{Injector: config.Source{Name: name, Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// withInit is the pod as an injector that knows no CNI plugin fills it.
func withInit(pod podtree.Object) podtree.Object {
	filled := podtree.Clone(pod)
	for list, c := range map[string]podtree.Object{
		"initContainers": initContainer,
		"containers": {
			"name": "istio-proxy", "securityContext": podtree.Object{"runAsUser": int64(1337)},
		},
	} {
		podtree.Set(filled, append(podtree.List(filled, "spec", list), c), "spec", list)
	}
	return filled
}

// initContainer is one that package strip takes out of pods.
var initContainer = podtree.Object{
	"name": "istio-init", "image": "proxyv2",
	"args": []any{"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT",
		"-i", "*", "-b", "*", "-d", "15020"},
}

// What inject and strip make of random pods is what their patches make of them.
func TestPatchesOfRandomPods(t *testing.T) {
	t.Parallel()
	cfg := injection(t)
	injected, stripped := 0, 0
	for seed := range uint64(100) {
		pod := podgen.Pod(rand.New(rand.NewPCG(seed, 3)))
		if r, err := inject.Inject(cfg, inject.Request{Pod: pod, Namespace: "shop"}); err == nil {
			injected++
			check(t, pod, r.Pod)
		}
		filled := withInit(pod)
		if after, _, err := strip.Strip(filled, redirect.Defaults()); err == nil {
			stripped++
			check(t, filled, after)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if injected < 40 || stripped < 40 {
		t.Errorf("%d of 100 injected, %d stripped", injected, stripped)
	}
}

// FuzzBetween takes any two trees.
func FuzzBetween(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"metadata":{"labels":{"a/b":"1"}}}`, `{"metadata":{"labels":{"~":null}},"spec":{}}`},
		{`{"metadata":null,"spec":[]}`, `{"metadata":{"":{"":0}},"spec":{"a":[null]}}`},
		{`{"metadata":{"annotations":{}}}`, `{"metadata":{"annotations":{"a":"1"}}}`},
	} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		before, err := podtree.Decode(one)
		if err != nil {
			return
		}
		parts, err := podtree.Decode(other)
		if err != nil {
			return
		}
		after := podtree.Clone(before)
		for _, part := range []string{"metadata", "spec"} {
			delete(after, part)
			if value, ok := parts[part]; ok {
				after[part] = value
			}
		}
		check(t, before, after)
	})
}
