package podgen_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/test/podgen"
)

func TestPodsDecodeStrictly(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		data, err := json.Marshal(podgen.Pod(rand.New(rand.NewPCG(seed, 0))))
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		mistakes, err := kjson.UnmarshalStrict(data, &pod)
		if err != nil || len(mistakes) > 0 {
			t.Fatalf("seed %d: %v %v:\n%s", seed, err, mistakes, data)
		}
	}
}

// A seed is one pod, so that a failure can be looked at again.
func TestASeedIsOnePod(t *testing.T) {
	t.Parallel()
	first := podgen.Pod(rand.New(rand.NewPCG(7, 0)))
	if diff := cmp.Diff(first, podgen.Pod(rand.New(rand.NewPCG(7, 0)))); diff != "" {
		t.Error(diff)
	}
}

// The variety that the tests of inject count on.
func TestPodsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := range uint64(200) {
		pod := podgen.Pod(rand.New(rand.NewPCG(seed, 0)))
		for _, field := range []string{"initContainers", "volumes", "securityContext", "dnsConfig"} {
			seen[field] = seen[field] || podtree.Get(pod, "spec", field) != nil
		}
		for _, list := range []string{"containers", "initContainers"} {
			for _, item := range podtree.List(pod, "spec", list) {
				note(seen, list, item.(podtree.Object))
			}
		}
	}
	for _, want := range []string{
		"initContainers", "volumes", "securityContext", "dnsConfig",
		"containers httpGet", "containers tcpSocket", "containers grpc", "containers lifecycle",
		"containers ports", "initContainers Always", "initContainers httpGet",
	} {
		if !seen[want] {
			t.Errorf("no pod of 200 has %s", want)
		}
	}
}

func note(seen map[string]bool, list string, c podtree.Object) {
	for key := range c {
		seen[list+" "+key] = true
	}
	for _, probe := range []string{"readinessProbe", "livenessProbe", "startupProbe"} {
		for action := range podtree.Map(c, probe) {
			seen[list+" "+action] = true
		}
	}
	if c["restartPolicy"] == "Always" {
		seen[list+" Always"] = true
	}
}
