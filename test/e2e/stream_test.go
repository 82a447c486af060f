//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	// mostUnready bounds the pods of a stream that are not ready yet. Without it, a machine that
	// starts fewer pods than are created collects them until its runtime fails.
	mostUnready = 20
	// mostReady bounds those that are, on each node: a kubelet takes 110 pods. The oldest are
	// deleted.
	mostReady = 40
)

// A stream is pods that are created one after the other, whatever else goes on.
type stream struct {
	rig   *rig
	space string
	stop  context.CancelFunc
	done  chan error
	began time.Time
	made  int
	ready map[string]bool // by name: those that have been ready
	alive []string        // of these, the ones that were not deleted, the oldest first
	seen  func(*corev1.Pod) error
	keeps int // pods that are alive on each node
}

// stream creates pods in a namespace of its own until it is ended. The nodes take turns.
func (r *rig) stream(t *testing.T, space string, every time.Duration,
	pod func(space, name string) *corev1.Pod) *stream {
	t.Helper()
	return r.streamSeen(t, &stream{space: space, seen: validatedAtOnce, keeps: mostReady}, every,
		pod)
}

// streamSeen has each pod seen when it is ready for the first time, before it can be deleted.
func (r *rig) streamSeen(t *testing.T, s *stream, every time.Duration,
	pod func(space, name string) *corev1.Pod) *stream {
	t.Helper()
	r.namespace(t, s.space, "restricted")
	ctx, stop := context.WithCancel(t.Context())
	s.rig, s.stop, s.done, s.began, s.ready = r, stop, make(chan error, 1), time.Now(),
		map[string]bool{}
	go func() { s.done <- s.run(ctx, every, pod) }()
	t.Cleanup(stop)
	return s
}

func (s *stream) run(ctx context.Context, every time.Duration,
	pod func(space, name string) *corev1.Pod) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	events, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer func() { events.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open {
				if events, err = s.watch(ctx); err != nil {
					return err
				}
				continue
			}
			if p, ok := event.Object.(*corev1.Pod); ok && cluster.Ready(p) == nil &&
				!s.ready[p.Name] {
				s.ready[p.Name], s.alive = true, append(s.alive, p.Name)
				if err := s.seen(p); err != nil {
					return err
				}
			}
		case <-tick.C:
			if s.made-len(s.ready) >= mostUnready {
				continue
			}
			if err := s.retire(ctx); err != nil {
				return err
			}
			if err := s.create(ctx, pod(s.space, fmt.Sprintf("pod-%d", s.made))); err != nil {
				return err
			}
		}
	}
}

// watch follows the stream's pods. It begins with those that there are, so that one that ended can
// be followed by another.
func (s *stream) watch(ctx context.Context) (watch.Interface, error) {
	events := watch.NewEmptyWatch()
	err := s.tried(ctx, func() error {
		w, err := s.rig.Client().CoreV1().Pods(s.space).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			events = w
		}
		return err
	})
	return events, err
}

// tried asks the API server once a second until it is there. Who ends the stream ends that, too.
func (s *stream) tried(ctx context.Context, ask func() error) error {
	var err error
	for i := 0; i < 60 && ctx.Err() == nil; i++ {
		if err = ask(); err == nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

func (s *stream) create(ctx context.Context, pod *corev1.Pod) error {
	pod = on(s.rig.Node(s.made%s.rig.nodes).Name, pod)
	err := s.tried(ctx, func() error {
		_, err := s.rig.Client().CoreV1().Pods(s.space).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the answer to the last try was lost
			return nil
		}
		return err
	})
	if err == nil {
		s.made++
	}
	return err
}

// retire deletes the oldest pod if there are too many.
func (s *stream) retire(ctx context.Context) error {
	if len(s.alive) < s.keeps*s.rig.nodes {
		return nil
	}
	oldest := s.alive[0]
	s.alive = s.alive[1:]
	return s.tried(ctx, func() error {
		err := s.rig.Client().CoreV1().Pods(s.space).Delete(ctx, oldest, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// end stops it and waits until each pod that was not deleted is ready. It returns them.
func (s *stream) end(t *testing.T) []corev1.Pod {
	t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	took := time.Since(s.began)
	t.Logf("%d pods were created in %s and %d became ready, %.1f a second; at most %d were not "+
		"ready yet at any time",
		s.made, took.Round(time.Second), len(s.ready), float64(len(s.ready))/took.Seconds(),
		mostUnready)
	var all []corev1.Pod
	s.rig.Await(t, "the pods of "+s.space, func(ctx context.Context) error {
		list, err := s.rig.Client().CoreV1().Pods(s.space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(list.Items,
			func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		waits := 0
		for i := range all {
			if cluster.Ready(&all[i]) != nil {
				waits++
			}
		}
		if waits > 0 {
			return fmt.Errorf("%d of %d are not ready", waits, len(all))
		}
		return nil
	})
	if len(all) == 0 {
		t.Error("none was created")
	}
	return all
}

// expectNoFailedSandbox reads the events of a namespace.
func (r *rig) expectNoFailedSandbox(t *testing.T, space string) {
	t.Helper()
	for _, failed := range r.failedSandboxes(t, space) {
		t.Error(failed)
	}
}

func (r *rig) failedSandboxes(t *testing.T, space string) (found []string) {
	t.Helper()
	events, err := r.Client().CoreV1().Events(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && strings.Contains(e.Reason, "Sandbox") {
			found = append(found, fmt.Sprintf("%s: %s: %s", e.InvolvedObject.Name, e.Reason,
				e.Message))
		}
	}
	return found
}

// expectAllRedirected looks at the kernel, and at istio-validation, which must have been content at
// once.
func (r *rig) expectAllRedirected(t *testing.T, all []corev1.Pod) {
	t.Helper()
	for i := range all {
		if err := validatedAtOnce(&all[i]); err != nil {
			t.Error(err)
		}
		r.expectRedirected(t, &all[i])
	}
}

// validatedAtOnce reports an init container, which istio-validation is, that failed and was started
// again.
func validatedAtOnce(pod *corev1.Pod) error {
	for _, s := range pod.Status.InitContainerStatuses {
		if s.RestartCount > 0 {
			return fmt.Errorf("%s of %s was started again %d times", s.Name, pod.Name,
				s.RestartCount)
		}
	}
	return nil
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
