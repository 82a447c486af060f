package main

import (
	_ "embed"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/pod.yaml
var meshedPod []byte

// meshed is a pod with a sidecar, as the API server has it.
func meshed(t testing.TB, i int) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(meshedPod, pod); err != nil {
		t.Fatalf("read pod: %v", err)
	}
	pod.Name, pod.UID = podName(i), types.UID(fmt.Sprintf("5d1c5f0e-7b0c-4d63-9a54-%012d", i))
	return pod
}

func podName(i int) string { return fmt.Sprintf("web-6d4cf56db6-%05d", i) }

// unmeshed are the annotations that the kubelet sets on every pod.
var unmeshed = map[string]string{
	"kubernetes.io/config.seen":   "2026-01-07T10:00:00.000000000Z",
	"kubernetes.io/config.source": "api",
}

// annotations are a pod's, as the runtime passes them.
func annotations(pod *corev1.Pod) map[string]string {
	all := maps.Clone(unmeshed)
	maps.Copy(all, pod.Annotations)
	return all
}
