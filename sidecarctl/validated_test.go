package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const validationImage = "registry.example/sidecar-cni:0.1.0"

// wantValidated wants the container before all others of a pod's init containers.
func wantValidated(t *testing.T, spec corev1.PodSpec) {
	t.Helper()
	if len(spec.InitContainers) == 0 || spec.InitContainers[0].Name != "istio-validation" {
		t.Fatalf("the first init container is none of %v", spec.InitContainers)
	}
	c := spec.InitContainers[0]
	if c.Image != validationImage || !slices.Contains(c.Args, "--inbound-port=15006") ||
		*c.SecurityContext.RunAsUser != 1337 {
		t.Errorf("the container is %+v", c)
	}
}

func TestInjectWithValidation(t *testing.T) {
	t.Parallel()
	text, _, _ := strings.Cut(fmt.Sprintf(workload, "comment"), "---\n")
	i := newInjection(t, text, "enabled")
	out, stderr, code := i.inject(t, "--validationImage", validationImage)
	var w struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := yaml.Unmarshal([]byte(out), &w); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v, %s", code, err, stderr)
	}
	wantValidated(t, w.Spec.Template.Spec)
	if status := w.Spec.Template.Annotations["sidecar.istio.io/status"]; !strings.Contains(status,
		`"istio-validation"`) {
		t.Errorf("the status does not name it: %s", status)
	}
	write(t, i.path("in.yaml"), out)
	if without, _, _ := i.inject(t); strings.Contains(without, "istio-validation") {
		t.Errorf("without the flag it stays:\n%s", without)
	}
	back, stderr, code := run(t.Context(), out, "uninject", "-f", "-")
	if diff := cmp.Diff(text, back); diff != "" || code != 0 {
		t.Errorf("uninject: exit code %d, %s (-want +got):\n%s", code, stderr, diff)
	}
}

func TestStripWithValidation(t *testing.T) {
	t.Parallel()
	text := filledPod("web", "1337")
	out, stderr, code := run(t.Context(), text, "strip", "-f", "-", "--validationImage",
		validationImage)
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(out), &pod); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v, %s", code, err, stderr)
	}
	wantValidated(t, pod.Spec)
	if len(pod.Spec.InitContainers) != 1 {
		t.Errorf("istio-init is there:\n%s", out)
	}
	back, stderr, code := run(t.Context(), out, "uninject", "-f", "-")
	if diff := cmp.Diff(text, back); diff != "" || code != 0 {
		t.Errorf("uninject: exit code %d, %s (-want +got):\n%s", code, stderr, diff)
	}
}

// A pod of which no call could show that it is redirected keeps istio-init.
func TestStripWithoutAWayToValidate(t *testing.T) {
	t.Parallel()
	text := strings.Replace(filledPod("web", "1337"), `-b, "*"`, `-b, "*", -c, lo`, 1)
	out, stderr, code := run(t.Context(), text, "strip", "-f", "-", "--validationImage",
		validationImage)
	if code != exitAmiss || out != text || !strings.Contains(stderr, "istio-init stays") ||
		!strings.Contains(stderr, "or leave out --validationImage") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, cmp.Diff(text, out))
	}
}
