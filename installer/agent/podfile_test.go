package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/podfiles"
)

// FuzzAFileDecidesAsTheWholePod holds the law of the pods' files: what is decided by a file,
// mistakes and warnings included, is what is decided by the whole pod.
func FuzzAFileDecidesAsTheWholePod(f *testing.F) {
	netns.RequireRoot(f) // whose the files are
	f.Add(uint64(1), "sidecar.istio.io/interceptionMode", "TPROXY", "", "")
	f.Add(uint64(2), "traffic.sidecar.istio.io/excludeOutboundPorts", "x", "sandboxed", "kata")
	f.Add(uint64(3), "kubernetes.io/config.mirror", "x", "sandboxed", "")
	for seed := range uint64(200) {
		f.Add(seed, "note", "", "", "")
	}
	f.Fuzz(func(t *testing.T, seed uint64, key, value, class, handler string) {
		r := &writer{Rand: rand.New(rand.NewPCG(seed, 1))}
		r.annotations, r.variables = keysOf(t)
		whole := plausibleWith(r, key, value, class)
		want := facts(t, whole)
		described := Describe(strip(whole))
		if class != "" {
			want.Spec.RuntimeHandler, described.RuntimeHandler = handler, handler
		}
		body, err := json.Marshal(described)
		if err != nil {
			t.Fatal(err)
		}
		run := t.TempDir()
		files := podfiles.New(t, run)
		files.Write("5d1c", string(body))
		files.Refresh(0)
		found, err := podsource.Sources{PodFiles: run}.Find(t.Context(),
			podsource.Ref{Namespace: "shop", Name: "web-0", UID: "5d1c"})
		if err != nil || found.From != podsource.FromFile {
			t.Fatalf("from %q, error %v, passed over %v; want the file", found.From, err,
				found.PassedOver)
		}
		decide := func(pod redirect.Pod) []any {
			d, err := redirect.Decide(pod, redirect.Defaults())
			return []any{d, fmt.Sprint(err)}
		}
		if diff := cmp.Diff(decide(want), decide(found.Pod), byValue); diff != "" {
			t.Errorf("decision about %+v (-of the pod +of the file):\n%s", whole, diff)
		}
	})
}

// plausibleWith returns a pod that an injector may have written, and something more. Who writes so
// much that no file would take it gets less.
func plausibleWith(r *writer, key, value, class string) *corev1.Pod {
	pod := r.plausible()
	pod.Annotations["sidecar.istio.io/status"] = "{}"
	if len(key)+len(value) < 1<<10 {
		pod.Annotations[key] = value
	}
	if class != "" && len(class) < 1<<10 {
		pod.Spec.RuntimeClassName = &class
	}
	return pod
}
