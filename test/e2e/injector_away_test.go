//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// passesHelmTest: the chart's own test finds that its pod is redirected.
func (in *injecting) passesHelmTest(t *testing.T) {
	if said, err := in.tryHelm("test"); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// noReplica: pods that are to be injected are refused, and who creates one is told by whom; pods
// that are to be stripped start with istio-init; all others start, and the injector's own.
func (in *injecting) noReplica(t *testing.T) {
	refused := in.rejections(t)
	in.scaleDown(t)
	in.Await(t, "a refusal that names our webhook", func(ctx context.Context) error {
		_, err := in.admit(ctx, newPod(injectedSpace, "asks"))
		if err != nil && strings.Contains(err.Error(), injectHook) {
			return nil
		}
		return fmt.Errorf("the API server says: %w", err)
	})
	// The API server's connections last as long as the replicas' processes.
	in.Await(t, "istio-init to stay", func(ctx context.Context) error {
		p, err := in.admit(ctx, filled(strippedSpace, "asks"))
		if err == nil && !hasContainer(p, "istio-init") {
			err = fmt.Errorf("the containers are %v", containers(p))
		}
		return err
	})
	in.expectOthers(t)
	kept := on("node0", filled(strippedSpace, "kept"))
	plain := on("node1", newPod(plainSpace, "started"))
	for _, p := range []*corev1.Pod{kept, plain} {
		in.create(t, p)
	}
	kept = in.ready(t, kept)
	if !slices.Equal(containers(kept), []string{"istio-init", "istio-proxy", "app"}) {
		t.Errorf("its containers are %v", containers(kept))
	}
	in.expectCalled(t, kept)
	in.ready(t, plain)
	if now := in.rejections(t); now <= refused {
		t.Errorf("the API server has counted %v rejections, and before %v", now, refused)
	}
	in.Kubectl(t, "--namespace="+home, "scale", "deployment", injectorName, "--replicas=2")
	in.AwaitRollout(t, home, "deployment/"+injectorName)
	in.awaitInjection(t, injectedSpace, true)
	in.awaitStrip(t)
}

// expectOthers holds that pods which are not to be injected are created all the same, whose
// namespace is.
func (in *injecting) expectOthers(t *testing.T) {
	t.Helper()
	label, annotation := newPod(injectedSpace, "label"), newPod(injectedSpace, "annotation")
	label.Labels["sidecar.istio.io/inject"] = "false"
	annotation.Annotations["sidecar.istio.io/inject"] = "false"
	host := newPod(bothSpace, "host")
	host.Spec.HostNetwork = true
	for _, p := range []*corev1.Pod{label, annotation, host, filled(bothSpace, "filled")} {
		if _, err := in.admit(t.Context(), p); err != nil {
			t.Errorf("without a replica the API server says of pod %s: %v", p.Name, err)
		}
	}
}

// scaleDown ends all replicas at once.
func (in *injecting) scaleDown(t *testing.T) {
	t.Helper()
	in.Kubectl(t, "--namespace="+home, "scale", "deployment", injectorName, "--replicas=0")
	in.Kubectl(t, "--namespace="+home, "delete", "pods", "--force", "--grace-period=0",
		"--selector=app.kubernetes.io/component=injector")
	in.Await(t, "the replicas to go", func(ctx context.Context) error {
		all, err := in.injectors(ctx)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there are %s", podNames(all))
		}
		return err
	})
}

// rejections is how often the API server refused pods because our webhook did not answer: what the
// chart's alert is about.
func (in *injecting) rejections(t *testing.T) float64 {
	t.Helper()
	text, err := in.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := sumOf(string(text), "apiserver_admission_webhook_rejection_count",
		`name="`+injectHook+`"`, `error_type="calling_webhook_error"`)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// withoutPlugin: on a node that no plugin redirects pods on, those that need it do not start, and
// say why; others do.
func (in *injecting) withoutPlugin(t *testing.T) {
	n := in.Node(len(bothRuntimes))
	plain := on(n.Name, newPod(plainSpace, "guard-plain"))
	open := []*corev1.Pod{on(n.Name, newPod(injectedSpace, "guard-injected")),
		on(n.Name, filled(strippedSpace, "guard-stripped"))}
	for _, p := range append(open, plain) {
		in.create(t, p)
	}
	in.ready(t, plain)
	for _, p := range open {
		t.Run(p.Name, func(t *testing.T) { in.expectHeld(t, p) })
	}
	in.Kubectl(t, "--namespace="+injectedSpace, "delete", "pod", "guard-injected")
	in.Kubectl(t, "--namespace="+strippedSpace, "delete", "pod", "guard-stripped")
}

// expectHeld waits until the validation of a pod has failed, and holds that nothing else of it was
// started.
func (in *injecting) expectHeld(t *testing.T, p *corev1.Pod) {
	t.Helper()
	p = in.AwaitPod(t, p.Namespace, p.Name, func(p *corev1.Pod) error {
		for _, s := range p.Status.InitContainerStatuses {
			for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
				if state.Terminated != nil && state.Terminated.ExitCode == 126 {
					return nil
				}
			}
		}
		return errors.New("the validation has not failed")
	})
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name != "istio-validation" && (s.ContainerID != "" || s.State.Waiting == nil) {
			t.Errorf("container %s of %s was started: %+v", s.Name, p.Name, s.State)
		}
	}
	in.awaitSaid(t, p, "istio-validation", "this pod is not redirected")
}
