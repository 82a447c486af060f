package reconcile

import (
	"errors"
	"path/filepath"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/test/criserver"
)

// The runtime is looked for at each socket until one is known to run the agent. From then on only
// that one is asked.
func TestTheSocketThatIsOurs(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "s")
	r := &Reconciler{cfg: Settings{PodUID: "me"},
		known: Findings{Where: Place{Sockets: []string{first, second}, Declared: "cri-o://1.33.0"}}}
	listen := func(socket, name, pod string) (stop func()) {
		return criserver.Serve(t, socket,
			&criserver.Runtime{Name: name, Pods: []*api.PodSandbox{criserver.Sandbox(pod)}})
	}
	ask := func() (cri.Runtime, error) { return r.ask(t.Context()) }
	if _, err := ask(); !errors.Is(err, errNobody) {
		t.Errorf("nobody listens: %v", err)
	}
	idle := listen(first, "containerd", "somebody")
	if _, err := ask(); !isNotOurs(err) {
		t.Errorf("an idle one: %v", err)
	}
	stop := listen(second, "cri-o", "me")
	if r, err := ask(); err != nil || r.Name != "cri-o" {
		t.Errorf("ours, behind an idle one: %+v, %v", r, err)
	}
	stop()
	idle()
	listen(first, "containerd", "me")
	if r, err := ask(); err == nil {
		t.Errorf("ours is silent: %+v", r)
	}
}

func isNotOurs(err error) bool {
	_, ok := errors.AsType[*notOurs](err)
	return ok
}
