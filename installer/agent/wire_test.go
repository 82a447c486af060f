package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// What decides is the same whether the agent reads it from its cache or the plugin from the API
// server's JSON.
func TestFactsAreThoseOfThePodInJSON(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	one, two := int64(1337), int64(1000)
	full := corev1.Container{
		Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, RestartPolicy: &always,
		Env: []corev1.EnvVar{
			{Name: "A", Value: "a"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}},
			{Name: "A", Value: "again"}, {Name: "C"},
		},
		SecurityContext: &corev1.SecurityContext{RunAsUser: &one, RunAsGroup: &two},
	}
	rows := map[string]*corev1.Pod{
		"empty": {},
		"full": {
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-0", UID: "u", Labels: map[string]string{"l": "1"},
				Annotations: map[string]string{"a": "2"},
			},
			Spec: corev1.PodSpec{
				InitContainers:  []corev1.Container{full, {Name: "migrate"}},
				Containers:      []corev1.Container{{Name: "app"}, full},
				SecurityContext: &corev1.PodSecurityContext{RunAsUser: &two, RunAsGroup: &one},
			},
		},
	}
	for name, pod := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := kubepod.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parsed.Facts(), agent.Describe(pod).Facts()); diff != "" {
				t.Errorf("facts (-JSON +direct):\n%s", diff)
			}
		})
	}
}
