package inject_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
	"github.com/sidecar-cni/sidecar-cni/test/podgen"
)

// forms are configurations whose templates accept any pod.
func forms(t testing.TB) map[string]*config.Config {
	native := strings.Replace(file(t, "istio-1.1.yaml"), "policy: enabled",
		"policy: enabled\nsidecarCNI: {nativeSidecars: true}", 1)
	return map[string]*config.Config{
		"istio 1.1": istio11(t), "today": today(t), "istio 1.1, native": load(t, native),
		"small": load(t, "policy: enabled"+small),
	}
}

// What comes out of random pods is a pod by the API's types, redirected, and the author's own.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	all := forms(t)
	injected := map[string]int{}
	for seed := range uint64(100) {
		pod := podgen.Pod(rand.New(rand.NewPCG(seed, 1)))
		for name, cfg := range all {
			result, err := inject.Inject(cfg, request(pod))
			if err != nil {
				// An init container that would lose the network may be refused.
				if !strings.Contains(err.Error(), "istio-init") {
					t.Errorf("seed %d, %s: %v", seed, name, err)
				}
				continue
			}
			injected[name]++
			checkResult(t, pod, result.Pod, true)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for name := range all {
		if injected[name] < 40 {
			t.Errorf("%s: %d of 100 injected, want at least 40", name, injected[name])
		}
	}
}

// checkResult is what holds of any pod that is injected. Of a template that is known nothing is put
// into the author's containers.
func checkResult(t *testing.T, before, after podtree.Object, known bool) {
	t.Helper()
	text := marshal(t, after)
	var typed corev1.Pod
	unknown, err := kjson.UnmarshalStrict([]byte(text), &typed)
	if err != nil || len(unknown) > len(unknownOf(t, before)) {
		t.Errorf("%v, %v: %s", err, unknown, text)
	}
	pod, err := kubepod.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	facts := pod.Facts()
	facts.Namespace, facts.Name, facts.Spec.RuntimeClass = "shop", "web", ""
	decision, err := redirect.Decide(facts, redirect.Defaults())
	none := podtree.String(after, "metadata", "annotations", "sidecar.istio.io/interceptionMode") == "NONE"
	if err != nil || decision.AskMore || (decision.Skip != "") != none {
		t.Errorf("%v, %v: %s", decision.Skip, err, text)
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, item := range podtree.List(before, "spec", list) {
			own := item.(podtree.Object)
			now := container(after, podtree.String(own, "name"))
			if now == nil {
				t.Errorf("%s %q is gone", list, own["name"])
			} else if known && own["name"] != "istio-proxy" {
				checkOwn(t, own, now)
			}
		}
	}
}

func unknownOf(t *testing.T, pod podtree.Object) []error {
	t.Helper()
	var typed corev1.Pod
	unknown, err := kjson.UnmarshalStrict([]byte(marshal(t, pod)), &typed)
	if err != nil {
		t.Fatal(err)
	}
	return unknown
}

// checkOwn compares a container of the author's with what became of it. Probes may have changed.
func checkOwn(t *testing.T, own, now podtree.Object) {
	t.Helper()
	own, now = podtree.Clone(own), podtree.Clone(now)
	for _, key := range []string{"readinessProbe", "livenessProbe", "startupProbe", "lifecycle"} {
		if (own[key] == nil) != (now[key] == nil) {
			t.Errorf("%q: %s was %v and is %v", own["name"], key, own[key], now[key])
		}
		delete(own, key)
		delete(now, key)
	}
	if !cmp.Equal(own, now) {
		t.Errorf("%q: %s", own["name"], cmp.Diff(own, now))
	}
}

// FuzzInject injects any JSON, by any template. Nothing panics, the request stays as it was, and
// what comes out is what checkResult says.
func FuzzInject(f *testing.F) {
	for seed := range uint64(8) {
		f.Add([]byte(marshal(f, podgen.Pod(rand.New(rand.NewPCG(seed, 2))))), "", uint8(seed))
	}
	f.Add([]byte(`{"spec":{"containers":[{"name":"istio-proxy","image":"auto","env":[{"name":"A"}]}]}}`), todayProxy, uint8(4))
	f.Add([]byte(`{"metadata":null,"spec":{"containers":null,"someday":[{}]}}`), oldProxy, uint8(5))
	f.Add([]byte(`{"metadata":null,"spec":{"containers":null,"volumes":null}}`), todayProxy, uint8(4))
	f.Add([]byte(`{"spec":{}}`), "spec: {containers: [{name: istio-proxy, $patch: replace}]}", uint8(4))
	f.Add([]byte(`{"spec":{"volumes":[{"name":"a"}]}}`), "spec: &a {volumes: [{name: a, $patch: delete}], dnsConfig: {options: [1]}}", uint8(4))
	ready := forms(f)
	names := []string{"istio 1.1", "today", "istio 1.1, native", "small"}
	f.Fuzz(func(t *testing.T, data []byte, text string, which uint8) {
		pod, err := podtree.Decode(data)
		if err != nil {
			return
		}
		cfg := ready[names[int(which)%len(names)]]
		if text != "" {
			if cfg, err = loadFuzzed(text, which%2 == 0); err != nil {
				return
			}
		}
		before := podtree.Clone(pod)
		result, err := inject.Inject(cfg, request(pod))
		if !cmp.Equal(before, pod) {
			t.Fatalf("the request's pod changed: %s", cmp.Diff(before, pod))
		}
		if err != nil {
			if result.Pod != nil || err.Error() == "" {
				t.Fatalf("%v and %v", result, err)
			}
			return
		}
		if result.Decision.Reason.String() == "" {
			t.Fatalf("no reason: %+v", result.Decision)
		}
		if result.Decision.Inject {
			checkResult(t, pod, result.Pod, text == "")
		}
	})
}

func loadFuzzed(text string, today bool) (*config.Config, error) {
	fields := podtree.Object{"policy": "enabled", "template": text}
	if today {
		fields = podtree.Object{
			"policy": "enabled", "templates": podtree.Object{"sidecar": text},
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return config.Load(config.Sources{Injector: config.Source{Name: "fuzzed", Data: data}})
}
