// Package criserver is a container runtime that answers on a socket what a test has it answer: who
// it is, what it has loaded, and which pods it runs.
//
//	stop := criserver.Serve(t, socket, &criserver.Runtime{Name: "containerd", Version: "2.1.0"})
//
// Be aware: it filters nothing. Whoever asks for some pods gets all.
package criserver

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is what a runtime says of itself.
type Runtime struct {
	Name, Version string
	NetworkReady  bool
	Pods          []*cri.PodSandbox
	// Info is what a verbose Status has beside. SetInfo changes it while it is served.
	Info map[string]string

	mu sync.Mutex
}

// Sandbox is that of a pod, ready.
func Sandbox(uid string) *cri.PodSandbox {
	return &cri.PodSandbox{
		Metadata: &cri.PodSandboxMetadata{Uid: uid}, State: cri.PodSandboxState_SANDBOX_READY,
	}
}

// SetInfo replaces Info.
func (r *Runtime) SetInfo(info map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Info = info
}

func (r *Runtime) info() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Info
}

// Serve serves a runtime on a socket until it is stopped, or the test ends.
func Serve(t testing.TB, socket string, r *Runtime) (stop func()) {
	t.Helper()
	return serve(t, socket, &service{runtime: r})
}

// ServeNothing serves a runtime that knows none of the questions.
func ServeNothing(t testing.TB, socket string) {
	t.Helper()
	serve(t, socket, cri.UnimplementedRuntimeServiceServer{})
}

func serve(t testing.TB, socket string, s cri.RuntimeServiceServer) (stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, s)
	go func() { _ = server.Serve(l) }() // it ends when it is stopped
	t.Cleanup(server.Stop)
	return server.Stop
}

// service answers by a Runtime.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	runtime *Runtime
}

func (s *service) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: s.runtime.Name, RuntimeVersion: s.runtime.Version}, nil
}

func (s *service) Status(_ context.Context, q *cri.StatusRequest) (*cri.StatusResponse, error) {
	answer := &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: s.runtime.NetworkReady, Message: "because"},
	}}}
	if q.GetVerbose() {
		answer.Info = s.runtime.info()
	}
	return answer, nil
}

func (s *service) ListPodSandbox(context.Context,
	*cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: s.runtime.Pods}, nil
}
