package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// random returns a pod with something in every field.
func random(fill *randfill.Filler) *corev1.Pod {
	pod := &corev1.Pod{}
	fill.Fill(pod)
	// Only some bytes are allowed in managed fields.
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
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

// pick returns one of some.
func pick[T any](r *rand.Rand, some ...T) T { return some[r.IntN(len(some))] }

// keysOf returns the annotations and variables that the reference page tells authors of pods about.
func keysOf(t *testing.T) (annotations, variables []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile("`(?:([a-z.-]+\\.io/[A-Za-z-]+)|([A-Z][A-Z0-9_]{5,}))`")
	for _, m := range keys.FindAllStringSubmatch(string(page), -1) {
		if m[1] != "" {
			annotations = append(annotations, m[1])
		} else {
			variables = append(variables, m[2])
		}
	}
	slices.Sort(annotations)
	slices.Sort(variables)
	annotations, variables = slices.Compact(annotations), slices.Compact(variables)
	if len(annotations) < 14 || len(variables) < 7 {
		t.Fatalf("annotations %q, variables %q: want all", annotations, variables)
	}
	return append(annotations, "kubernetes.io/config.source", corev1.MirrorPodAnnotationKey),
		variables
}

// A writer of pods knows the keys.
type writer struct {
	*rand.Rand
	annotations, variables []string
}

// plausible returns a pod whose containers, variables and annotations are more often than not of
// those that decide.
func (r *writer) plausible() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", UID: "5d1c",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{},
	}}
	values := []string{
		"true", "false", "", "*", "1,2", "10.0.0.0/8", "NONE", "TPROXY", "bypass", "1000", "file",
		"router",
	}
	for _, key := range append(r.annotations, "note") {
		if r.IntN(5) == 0 || key == "sidecar.istio.io/status" && r.IntN(3) > 0 {
			pod.Annotations[key] = pick(r.Rand, values...)
		}
	}
	if r.IntN(4) == 0 {
		pod.Annotations[redirect.StrippedAnnotation] = "true"
	}
	if r.IntN(4) == 0 {
		pod.Labels["sidecar.istio.io/inject"] = pick(r.Rand, "true", "false")
	}
	for _, name := range []string{"istio-init", "migrate", "istio-validation", "istio-proxy",
		"late"} {
		if c := r.container(name); r.IntN(4) == 0 {
			c.RestartPolicy = pick(r.Rand, nil, new(corev1.ContainerRestartPolicyAlways))
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
	}
	for _, name := range []string{"app", "istio-proxy", "other"} {
		if r.IntN(3) > 0 || name == "app" {
			pod.Spec.Containers = append(pod.Spec.Containers, r.container(name))
		}
	}
	return pod
}

func (r *writer) container(name string) corev1.Container {
	args := pick(r.Rand, nil, []string{"proxy"}, []string{"proxy", "sidecar", "-x"},
		[]string{"proxy", "router"})
	c := corev1.Container{Name: name, Args: args}
	for _, key := range slices.Concat(r.variables, r.variables) {
		if r.IntN(6) == 0 {
			e := corev1.EnvVar{Name: key, Value: pick(r.Rand, "true", "false", "1,2", "x")}
			if r.IntN(4) == 0 {
				e.ValueFrom = &corev1.EnvVarSource{}
			}
			c.Env = append(c.Env, e, corev1.EnvVar{Name: "OTHER", Value: "x"})
		}
	}
	if uid := int64(r.IntN(3) * 1000); r.IntN(2) == 0 {
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: &uid}
	}
	return c
}

// What decides is what the core reads, so the core is asked: about the whole pod, and about what
// the agent answers.
func TestWhatDecidesSurvives(t *testing.T) {
	t.Parallel()
	r := &writer{Rand: rand.New(rand.NewPCG(1, 2))}
	r.annotations, r.variables = keysOf(t)
	decide := func(pod redirect.Pod) []any {
		d, err := redirect.Decide(pod, redirect.Defaults())
		return []any{d, fmt.Sprint(err)}
	}
	outcomes := map[redirect.Skip]int{}
	for range 5_000 {
		pod := r.plausible()
		want := decide(facts(t, pod))
		outcomes[want[0].(redirect.Decision).Skip]++
		stripped := strip(pod)
		data, err := json.Marshal(Describe(stripped))
		if err != nil {
			t.Fatal(err)
		}
		read, err := kubepod.Parse(data)
		if err != nil || read.Metadata.UID != string(pod.UID) || read.Mirror() != mirrored(pod) {
			t.Fatalf("uid %q, mirror %v, error %v; want those of the pod", read.Metadata.UID,
				read.Mirror(), err)
		}
		if !Complete(stripped) {
			t.Fatalf("containers were dropped of %+v", pod)
		}
		if diff := cmp.Diff(want, decide(read.Facts()), byValue); diff != "" {
			t.Fatalf("decision about %+v (-of the pod +of the answer):\n%s", pod, diff)
		}
	}
	for _, skip := range []redirect.Skip{
		"", redirect.HasIstioInit, redirect.InitRestored, redirect.NoProxy, redirect.NotASidecar,
		redirect.NotInjected,
	} {
		if outcomes[skip] < 30 {
			t.Errorf("%d pods were decided as %q, which is too few to mean anything",
				outcomes[skip], skip)
		}
	}
}

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// A pod is kept by what decides about it, however much else its author has written.
func TestWhatIsKeptIsSmall(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	variables := []corev1.EnvVar{{Name: "A", Value: big}}
	rows := map[string]func(*corev1.Pod){
		"variables of the app": func(p *corev1.Pod) { p.Spec.Containers[0].Env = variables },
		"arguments of the app": func(p *corev1.Pod) {
			p.Spec.Containers[0].Args = []string{big}
		},
		"other variables of proxy": func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Env = variables
		},
		"later arguments of proxy": func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Args = []string{"proxy", "sidecar", big}
		},
		"other annotations": func(p *corev1.Pod) { p.Annotations["note"] = big },
		"labels":            func(p *corev1.Pod) { p.Labels["note"] = big },
		"owners": func(p *corev1.Pod) {
			p.OwnerReferences = make([]metav1.OwnerReference, 10_000)
		},
		"a variable, again and again": func(p *corev1.Pod) {
			for range 10_000 {
				proxy := &p.Spec.InitContainers[0]
				proxy.Env = append(proxy.Env, corev1.EnvVar{Name: "INVALID_DROP", Value: "true"})
			}
		},
		"containers of a pod without a sidecar": func(p *corev1.Pod) {
			p.Annotations = nil
			for i := range 10_000 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint(i)})
			}
		},
	}
	for name, grow := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := meshed("web-0", "5d1c")
			grow(pod)
			kept := strip(pod)
			data, err := kept.Marshal()
			if err != nil || len(data) > 1<<10 || !Complete(kept) {
				t.Errorf("%d bytes are kept, complete: %v, error %v", len(data), Complete(kept),
					err)
			}
		})
	}
}

// What decides can be too large as well. Such a pod is not kept, and the plugin gets it from the
// API server itself.
func TestAPodThatIsTooLargeIsLeftToThePlugin(t *testing.T) {
	t.Parallel()
	rows := map[string]func(*corev1.Pod){
		"variables": func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Env[0].Value = strings.Repeat("1", containersMost)
		},
		"arguments": func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Args = []string{"proxy", strings.Repeat("1", containersMost)}
		},
		"containers": func(p *corev1.Pod) {
			for i := range containersMost / containerCost {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint(i)})
			}
		},
	}
	for name, grow := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := meshed("web-0", "u0")
			grow(pod)
			for _, cached := range []bool{true, false} {
				r := overSockets(t)
				r.api.Put(pod)
				if cached {
					r.synced(t)
					kept := r.pods.List()[0]
					if data, err := kept.Marshal(); err != nil || len(data) > 1<<10 ||
						Complete(kept) {
						t.Errorf("%d bytes are kept, complete: %v, error %v", len(data),
							Complete(kept), err)
					}
				}
				sources := podsource.Sources{AgentSocket: startServer(t, r),
					Kubeconfig: r.api.Kubeconfig()}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				found, err := sources.Find(ctx,
					podsource.Ref{Namespace: "shop", Name: "web-0", UID: "u0"})
				want := podsource.Found{Pod: facts(t, pod), UID: "u0", From: podsource.FromAPI}
				if diff := cmp.Diff(want, found); diff != "" || err != nil {
					t.Errorf("cached: %v, error %v, found (-want +got):\n%s", cached, err, diff)
				}
				if a := r.pods.Find(ctx, Ref{"shop", "web-0", "u1"}); a.Verdict != OtherUID {
					t.Errorf("%+v, want that there is another", a)
				}
			}
		})
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
				p.Namespace, p.Name, p.UID, p.ResourceVersion, metav1.GetControllerOf(p),
				p.DeletionTimestamp,
				p.Spec.NodeName, p.Spec.HostNetwork, p.Spec.RestartPolicy,
				p.Status.Phase, p.Status.PodIP, p.Status.PodIPs,
			}
		}
		if diff := cmp.Diff(of(pod), of(got)); diff != "" {
			t.Fatalf("facts (-of the pod +of what was stripped):\n%s", diff)
		}
		if got.ManagedFields != nil || got.Spec.Volumes != nil ||
			got.Status.ContainerStatuses != nil {
			t.Fatal("there is more than that")
		}
	}
}

// protobuf is how the agent's client reads it.
func protobuf(t *testing.T) runtime.SerializerInfo {
	t.Helper()
	all := serializers().SupportedMediaTypes()
	info, ok := runtime.SerializerInfoForMediaType(all, runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("protobuf is not spoken")
	}
	return info
}

// What is read of a pod in protobuf is what is kept of it, whatever else is in it, and as it
// comes: by itself or in a list.
func TestWhatIsReadIsWhatIsKept(t *testing.T) {
	t.Parallel()
	fill, r := filler(), &writer{Rand: rand.New(rand.NewPCG(3, 4))}
	r.annotations, r.variables = keysOf(t)
	info := protobuf(t)
	for i := range 300 {
		pod := random(fill)
		if i%2 > 0 {
			pod = r.plausible()
		}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			Items: []corev1.Pod{*pod, *pod}}
		for _, object := range []runtime.Object{pod, list} {
			data, err := runtime.Encode(info.Serializer, object)
			if err != nil {
				t.Fatal(err)
			}
			read, err := runtime.Decode(info.Serializer, data)
			if err != nil {
				t.Fatal(err)
			}
			one, ok := read.(*corev1.Pod)
			if !ok {
				one = &read.(*corev1.PodList).Items[1]
			}
			if diff := cmp.Diff(reduce(pod), reduce(one), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%T (-whole +read):\n%s", object, diff)
			}
			if one.Size() > 2*reduce(pod).Size()+1<<10 {
				t.Fatalf("%d bytes were read, of which %d are kept", one.Size(), reduce(pod).Size())
			}
		}
	}
}

func TestContainersThatAreNotKeptAreNotRead(t *testing.T) {
	t.Parallel()
	info := protobuf(t)
	for _, count := range []int{1, containersMost / containerCost,
		containersMost/containerCost + 1} {
		pod := meshed("web-0", "5d1c")
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		// One more is an init container.
		pod.Spec.Containers = make([]corev1.Container, count-1)
		data, err := runtime.Encode(info.Serializer, pod)
		if err != nil {
			t.Fatal(err)
		}
		read, err := runtime.Decode(info.Serializer, data)
		if err != nil {
			t.Fatal(err)
		}
		spec, want := read.(*corev1.Pod).Spec, count
		if count > containersMost/containerCost {
			want = 0
		}
		if got := len(spec.InitContainers) + len(spec.Containers); got != want {
			t.Errorf("of %d containers %d were read, want %d", count, got, want)
		}
	}
}

// FuzzCut holds that no bytes make trouble, and that cutting twice is cutting once.
func FuzzCut(f *testing.F) {
	data, err := meshed("web-0", "5d1c").Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, message []byte) {
		once, err := podFields.cut(nil, message)
		if err != nil {
			return
		}
		twice, err := podFields.cut(nil, once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("error %v, once %x, twice %x", err, once, twice)
		}
	})
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
