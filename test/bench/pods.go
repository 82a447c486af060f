package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/redirect"
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
	pod.Name = podName(i)
	return pod
}

func podName(i int) string { return fmt.Sprintf("web-6d4cf56db6-%05d", i) }

// cached is what an agent keeps of a pod: what docs/agent-protocol.md lists.
func cached(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Labels:      only(pod.Labels, redirect.Labels()),
			Annotations: only(pod.Annotations, redirect.Annotations()),
		},
		Spec: corev1.PodSpec{
			InitContainers: deciding(pod.Spec.InitContainers),
			Containers:     deciding(pod.Spec.Containers),
		},
	}
}

func only(all map[string]string, keys []string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !slices.Contains(keys, key) })
	return kept
}

func deciding(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		k := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		if c.Name == redirect.ProxyContainer {
			k.Args = c.Args[:min(len(c.Args), redirect.DecisiveArgs)]
		}
		for _, e := range c.Env {
			if c.Name != redirect.ProxyContainer || !slices.Contains(redirect.Variables(), e.Name) {
				continue
			}
			if e.ValueFrom != nil {
				e.ValueFrom = &corev1.EnvVarSource{}
			}
			k.Env = append(k.Env, e)
		}
		if sc := c.SecurityContext; sc != nil {
			k.SecurityContext = &corev1.SecurityContext{RunAsUser: sc.RunAsUser,
				RunAsGroup: sc.RunAsGroup}
		}
		kept = append(kept, k)
	}
	return kept
}

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
