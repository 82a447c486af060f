package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sidecar-cni/sidecar-cni/installer/cri"
)

// ask asks the container runtime what it has. Another runtime may be idle on the same node: only
// the one that runs the agent's own pod is believed. Once its socket is known no other is asked,
// also while it does not answer.
func (r *Reconciler) ask(ctx context.Context) (cri.Runtime, error) {
	var failed error
	for _, socket := range r.known.Where.Sockets {
		runtime, err := r.askAt(ctx, socket)
		if err == nil {
			r.known.Where.Sockets = []string{socket}
			return runtime, nil
		}
		if !errors.Is(err, errNobody) {
			failed = cmp.Or(failed, err)
		}
	}
	return cri.Runtime{}, cmp.Or(failed, errNobody)
}

// askAt asks one socket. An error is errNobody, *notOurs, or says why there was no answer.
func (r *Reconciler) askAt(ctx context.Context, socket string) (cri.Runtime, error) {
	if _, err := os.Stat(socket); err != nil {
		return cri.Runtime{}, errNobody
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	runtime, err := cri.Ask(ctx, socket, r.cfg.PodUID)
	if err == nil && !r.runsUs(runtime) {
		err = &notOurs{socket, runtime, r.known.Where.Declared}
	}
	return runtime, err
}

// runsUs reports whether a runtime is the one that runs the node's pods. Outside of a pod the Node
// object decides by the name, and without one there is nothing that speaks against it.
func (r *Reconciler) runsUs(runtime cri.Runtime) bool {
	if r.cfg.PodUID != "" {
		return runtime.RunsPod
	}
	declared := r.known.Where.Declared
	return declared == "" || runtime.Name == cri.FromNode(declared).Name
}

// errNobody is of a runtime that cannot be asked: it is down, or its socket is elsewhere, or not
// mounted.
var errNobody = errors.New("the runtime's socket is not there, or its directory is not mounted " +
	"into the agent's pod " +
	"(--runtime-socket, the chart's runtimeSocket)")

// notOurs is the error of a socket at which another runtime answers than the one that runs the
// node's pods.
type notOurs struct {
	socket   string
	runtime  cri.Runtime
	declared string
}

func (e *notOurs) Error() string {
	text := fmt.Sprintf("%s %s answers at %s and does not run the agent's pod", e.runtime.Name,
		e.runtime.Version, e.socket)
	if e.declared != "" {
		text += ": the node's runtime is " + e.declared
	}
	return text + "; set --runtime-socket (the chart's runtimeSocket) to the socket of the " +
		"runtime that the kubelet uses, " +
		"and --conf-dir and --bin-dir if that one has other directories"
}
