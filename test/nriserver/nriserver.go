// Package nriserver is the container runtime as plugins of NRI see it: the real library's other
// half, in a process of its own, which tests can kill, stop and start anew.
//
//	runtime := nriserver.Start(t, nriserver.Options{Socket: socket})
//	connect(plugin, socket)
//	runtime.AwaitSynchronized(1)
//	took, err := runtime.RunPodSandbox(nriserver.Pod{ID: "1", Name: "web", Namespace: "shop"})
//
// As in containerd, no plugin is synchronized while a pod or a container is being started, and what
// has started is told to those that connect later.
//
// Be aware:
//   - Requests of one runtime are relayed one at a time, by the library: a plugin that hangs holds
//     up all of them until its request timeout.
//   - It accepts one plugin at a time: a connection on which no plugin registers keeps others
//     waiting for 5 s.
//   - A plugin that is registered is not relayed requests before it is synchronized.
//   - The first test that starts one builds its program, for which Go may download modules.
package nriserver

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/nriserver/line"
)

// Options say what runtime it is.
type Options struct {
	// Socket is where it listens. Old ones are replaced.
	Socket string
	// Version is the library's: "0.12", which is the default, or "0.8".
	Version string
	// RuntimeName and RuntimeVersion are told to plugins: containerd v2.4.2 unless set.
	RuntimeName, RuntimeVersion string
	// RequestTimeout is how long a plugin may take for an answer: 2 s unless set.
	RequestTimeout time.Duration
	// Validator enables the library's own, which refuses the containers of a pod whose annotation
	// required-plugins.noderesource.dev/pod names a plugin that is not connected. Not in 0.8.
	Validator bool
}

// Synchronized is the end of a Synchronize.
type Synchronized struct {
	Plugin   string // index and name, as in 10-sidecar-cni
	Messages int    // sent for it; those that were too large and sent again in parts count, too
	Took     time.Duration
	Err      error
}

// Server is a runtime.
type Server struct {
	t       testing.TB
	options Options
	stderr  record

	mu           sync.Mutex
	changed      chan struct{} // closed at the next change of what is below
	process      *process      // nil while none runs
	world        world
	synchronized []Synchronized
	plugins      []string
}

// Start runs a runtime until the test ends. It returns when plugins can connect.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Version == "" {
		o.Version = "0.12"
	}
	if o.RuntimeName == "" {
		o.RuntimeName = "containerd"
	}
	if o.RuntimeVersion == "" {
		o.RuntimeVersion = "v2.4.2"
	}
	s := &Server{t: t, options: o, changed: make(chan struct{})}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("runtime with NRI %s:\n%s", o.Version, &s.stderr)
		}
	})
	s.Restart()
	return s
}

// Restart kills the runtime, if it runs, and starts it anew on the same socket. It knows the pods
// that it knew.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	build, ok := programs[s.options.Version]
	if !ok {
		s.t.Fatalf("NRI %q: want 0.12 or 0.8", s.options.Version)
	}
	program, err := build()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", program.Fd()),
		"-socket", s.options.Socket, "-runtime-name", s.options.RuntimeName,
		"-runtime-version", s.options.RuntimeVersion,
		"-request-timeout", s.options.RequestTimeout.String(),
		fmt.Sprintf("-validator=%t", s.options.Validator))
	cmd.Stderr = &s.stderr
	process, err := start(cmd, s.hear)
	if err != nil {
		s.t.Fatalf("start runtime: %v", err)
	}
	s.change(func() { s.process = process })
	s.tellWorld()
	if _, err := s.call(request{Do: line.Start}); err != nil {
		s.t.Fatalf("start runtime: %v\n%s", err, &s.stderr)
	}
}

// Kill ends the runtime as SIGKILL does. The socket stays, and nobody listens on it.
func (s *Server) Kill() {
	if p := s.running(); p != nil {
		p.kill()
		s.change(func() { s.process, s.plugins = nil, nil })
	}
}

// Stop stops the runtime as SIGSTOP does: its connections stay, and it answers nothing.
func (s *Server) Stop() {
	s.t.Helper()
	if p := s.running(); p == nil {
		s.t.Fatal("stop runtime: it does not run")
	} else if err := p.stop(); err != nil {
		s.t.Fatalf("stop runtime: %v", err)
	}
}

// Cont lets a stopped runtime go on.
func (s *Server) Cont() {
	s.t.Helper()
	if p := s.running(); p == nil {
		s.t.Fatal("continue runtime: it does not run")
	} else if err := p.cmd.Process.Signal(unix.SIGCONT); err != nil {
		s.t.Fatalf("continue runtime: %v", err)
	}
}

// SetPods replaces what plugins that connect from now on are told. It can be called while the
// runtime does not run.
func (s *Server) SetPods(pods []Pod, containers []Container) {
	s.t.Helper()
	s.change(func() { s.world = world{slices.Clone(pods), slices.Clone(containers)} })
	if s.running() != nil {
		s.tellWorld()
	}
}

func (s *Server) tellWorld() {
	s.t.Helper()
	q := request{Do: line.Set}
	s.mu.Lock()
	for _, pod := range s.world.pods {
		q.Pods = append(q.Pods, &pod)
	}
	for _, container := range s.world.containers {
		q.Containers = append(q.Containers, &container)
	}
	s.mu.Unlock()
	if _, err := s.call(q); err != nil {
		s.t.Fatalf("tell runtime its pods: %v\n%s", err, &s.stderr)
	}
}

// RunPodSandbox tells plugins that a pod starts. An error is what the runtime tells the kubelet: a
// plugin refused the pod, or the runtime was killed before it knew.
//
// RunPodSandbox and the calls below may be made from any goroutine.
func (s *Server) RunPodSandbox(pod Pod) (time.Duration, error) {
	took, err := s.call(request{Do: line.RunPodSandbox, Pod: &pod})
	if err == nil {
		s.change(func() { s.world.pods = append(s.world.pods, pod) })
	}
	return took, err
}

// CreateContainer tells plugins that a container of a pod is created.
func (s *Server) CreateContainer(pod Pod, container Container) (time.Duration, error) {
	took, err := s.call(request{Do: line.CreateContainer, Pod: &pod, Container: &container})
	if err == nil {
		s.change(func() { s.world.containers = append(s.world.containers, container) })
	}
	return took, err
}

// StartContainer tells plugins that a container of a pod, which was created before, starts.
func (s *Server) StartContainer(pod Pod, container Container) (time.Duration, error) {
	return s.call(request{Do: line.StartContainer, Pod: &pod, Container: &container})
}

// StopPodSandbox tells plugins that a pod stops.
func (s *Server) StopPodSandbox(pod Pod) (time.Duration, error) {
	return s.call(request{Do: line.StopPodSandbox, Pod: &pod})
}

// RemovePodSandbox tells plugins that a pod is removed, and forgets it.
func (s *Server) RemovePodSandbox(pod Pod) (time.Duration, error) {
	took, err := s.call(request{Do: line.RemovePodSandbox, Pod: &pod})
	s.change(func() { s.world.forget(pod.ID) })
	return took, err
}

// call fails the test if there is no answer.
func (s *Server) call(q request) (time.Duration, error) {
	p := s.running()
	if p == nil {
		return 0, errEnded
	}
	took, err := p.call(q)
	if errors.Is(err, errTimeout) {
		s.t.Errorf("%s: %v\n%s", q.Do, err, &s.stderr)
	}
	return took, err
}
