//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// A stream is pods that are created one after the other, whatever else goes on.
type stream struct {
	rig   *rig
	space string
	stop  context.CancelFunc
	done  chan error
	made  int
}

// stream creates pods in a namespace of its own until it is ended. The nodes take turns.
func (r *rig) stream(t *testing.T, space string, every time.Duration, pod func(space, name string) *corev1.Pod) *stream {
	t.Helper()
	r.namespace(t, space, "restricted")
	ctx, stop := context.WithCancel(t.Context())
	s := &stream{rig: r, space: space, stop: stop, done: make(chan error, 1)}
	go func() { s.done <- s.run(ctx, every, pod) }()
	t.Cleanup(stop)
	return s
}

func (s *stream) run(ctx context.Context, every time.Duration, pod func(space, name string) *corev1.Pod) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p := on(s.rig.Node(s.made%s.rig.nodes).Name, pod(s.space, fmt.Sprintf("pod-%d", s.made)))
		err := retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error {
			_, err := s.rig.Client().CoreV1().Pods(s.space).Create(ctx, p, metav1.CreateOptions{})
			return err
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
		s.made++
	}
}

// end stops it and waits until each pod is ready. It returns them.
func (s *stream) end(t *testing.T) []corev1.Pod {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	var all []corev1.Pod
	s.rig.Await(t, "the pods of "+s.space, func(ctx context.Context) error {
		list, err := s.rig.Client().CoreV1().Pods(s.space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		all = list.Items
		waits := 0
		for i := range all {
			if err = errors.Join(cluster.Ready(&all[i])); err != nil {
				waits++
			}
		}
		if waits > 0 {
			return fmt.Errorf("%d of %d are not ready", waits, len(all))
		}
		return nil
	})
	t.Logf("%d pods started meanwhile", len(all))
	if len(all) == 0 {
		t.Error("none was created")
	}
	return all
}

// expectNoFailedSandbox reads the events of a namespace.
func (r *rig) expectNoFailedSandbox(t *testing.T, space string) {
	t.Helper()
	events, err := r.Client().CoreV1().Events(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && strings.Contains(e.Reason, "Sandbox") {
			t.Errorf("%s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// expectAllRedirected looks at the kernel, and at istio-validation, which must have been content at once.
func (r *rig) expectAllRedirected(t *testing.T, all []corev1.Pod) {
	t.Helper()
	for i := range all {
		for _, s := range all[i].Status.InitContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("%s of %s was started again %d times", s.Name, all[i].Name, s.RestartCount)
			}
		}
		r.expectRedirected(t, &all[i])
	}
}

// small is a meshed pod without what takes long to start.
func small(space, name string) *corev1.Pod {
	p := meshed(space, name, ordinary)
	p.Spec.Containers = p.Spec.Containers[:1]
	p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].ReadinessProbe = nil, nil
	return p
}

// unvalidated is one that starts whether it is redirected or not.
func unvalidated(space, name string) *corev1.Pod {
	p := small(space, name)
	p.Spec.InitContainers = nil
	return p
}
