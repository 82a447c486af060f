package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// aRuntime runs one pod.
type aRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	name, pod string
}

func (r aRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: r.name}, nil
}

func (r aRuntime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{}, nil
}

func (r aRuntime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{Metadata: &cri.PodSandboxMetadata{Uid: r.pod}}}}, nil
}

func (r aRuntime) listen(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s.Stop
}

// The runtime is looked for at each socket until one is known to run the agent. From then on only
// that one is asked.
func TestTheSocketThatIsOurs(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "s")
	p := &place{sockets: []string{first, second}, podUID: "me", declared: "cri-o://1.33.0"}
	ask := func() (node.Runtime, error) { return p.ask(t.Context()) }
	if _, err := ask(); !errors.Is(err, errNobody) {
		t.Errorf("nobody listens: %v", err)
	}
	idle := aRuntime{name: "containerd", pod: "somebody"}.listen(t, first)
	if _, err := ask(); !isNotOurs(err) {
		t.Errorf("an idle one: %v", err)
	}
	stop := aRuntime{name: "cri-o", pod: "me"}.listen(t, second)
	if r, err := ask(); err != nil || r.Name != "cri-o" {
		t.Errorf("ours, behind an idle one: %+v, %v", r, err)
	}
	stop()
	idle()
	aRuntime{name: "containerd", pod: "me"}.listen(t, first)
	if r, err := ask(); err == nil {
		t.Errorf("ours is silent: %+v", r)
	}
}

func isNotOurs(err error) bool {
	_, ok := errors.AsType[*notOurs](err)
	return ok
}
