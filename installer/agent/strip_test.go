package agent

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// random returns a pod with something in every field.
func random(fill *randfill.Filler) *corev1.Pod {
	pod := &corev1.Pod{}
	fill.Fill(pod)
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}} // not any bytes are allowed there
	return pod
}

func filler() *randfill.Filler {
	return randfill.NewWithSeed(1).NilChance(0.2).NumElements(0, 3).MaxDepth(12)
}

// facts are those of a pod as the API server would write it.
func facts(t *testing.T, pod *corev1.Pod) redirect.Pod {
	t.Helper()
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := kubepod.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Facts()
}

// What decides is what the core reads, so the core is asked.
func TestWhatDecidesSurvives(t *testing.T) {
	t.Parallel()
	fill := filler()
	for range 200 {
		pod := random(fill)
		want := facts(t, pod)
		stripped := strip(pod)
		if diff := cmp.Diff(want, facts(t, stripped)); diff != "" {
			t.Fatalf("facts (-of the pod +of what was stripped):\n%s", diff)
		}
		data, err := json.Marshal(Describe(stripped))
		if err != nil {
			t.Fatal(err)
		}
		read, err := kubepod.Parse(data)
		if err != nil || read.Metadata.UID != string(pod.UID) || read.Mirror() != mirrored(pod) {
			t.Fatalf("uid %q, mirror %v, error %v; want those of the pod", read.Metadata.UID, read.Mirror(), err)
		}
		if diff := cmp.Diff(want, read.Facts()); diff != "" {
			t.Fatalf("facts (-of the pod +of the answer):\n%s", diff)
		}
	}
}

func TestWhatRepairNeedsSurvives(t *testing.T) {
	t.Parallel()
	fill := filler()
	for range 50 {
		pod := random(fill)
		got := strip(pod)
		of := func(p *corev1.Pod) []any {
			return []any{
				p.Namespace, p.Name, p.UID, p.ResourceVersion, p.OwnerReferences, p.DeletionTimestamp,
				p.Spec.NodeName, p.Spec.HostNetwork, p.Spec.RestartPolicy,
				p.Status.Phase, p.Status.PodIP, p.Status.PodIPs,
			}
		}
		if diff := cmp.Diff(of(pod), of(got)); diff != "" {
			t.Fatalf("facts (-of the pod +of what was stripped):\n%s", diff)
		}
		if got.ManagedFields != nil || got.Spec.Volumes != nil || got.Status.ContainerStatuses != nil {
			t.Fatal("there is more than that")
		}
	}
}

func TestOtherObjectsPassTheTransformer(t *testing.T) {
	t.Parallel()
	bookmark := "bookmark"
	if got, err := newStore().Transformer()(bookmark); got != bookmark || err != nil {
		t.Errorf("%v, error %v; want it as it was", got, err)
	}
}

func BenchmarkAnswer(b *testing.B) {
	pod := strip(meshed("web-0", "5d1c"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(Describe(pod)); err != nil {
			b.Fatal(err)
		}
	}
}
