package guard

import (
	"errors"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/contract/refusal"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/redirect/program"
)

// A fault is why a sandbox is refused: what to do about it. The kubelet tries again by itself.
type fault string

const (
	notRedirected fault = "find out who took sidecar-cni out of the node's chain, the agent's " +
		"/readyz says more; the kubelet tries again by itself; with guard.mode auto the pod " +
		"would be redirected now"
	anew      fault = "delete the pod to have it created anew"
	badPod    fault = "correct the pod's annotations or variables and create it anew"
	ownKernel fault = "leave istio-init in such pods, or take them out of the mesh; the setting " +
		"runtimeHandlers can have them skipped or allowed"
	noSource fault = "check that the agent reaches the API server; the kubelet tries again by " +
		"itself"
	podGone      fault = "none if it was deleted or created anew; else delete it"
	badNamespace fault = "look whether the agent has the host's /proc and /run/netns; the " +
		"kubelet tries again by itself"
	kernelRefused fault = "load the module or install the program that is named, or choose " +
		"another backend"
	unread fault = "see which rules are in its network namespace, and who writes them; the " +
		"kubelet tries again by itself"
	badState     fault = "make the agent's run directory one that it can write, best on a tmpfs"
	foreignRules fault = "create the pod anew; if that does not help, take the other tool out of " +
		"the node's chain"
	tooSlow fault = "none if it passes, the kubelet tries again by itself; else look at the load " +
		"of the node"
	ownFault fault = "report it, together with the agent's log"
)

// A refusedError is a cause that has a remedy.
type refusedError struct {
	error
	remedy fault
}

func (e *refusedError) Unwrap() error { return e.error }

func refusedFor(cause error, remedy fault) verdict {
	return verdict{outcome: refused, err: &refusedError{cause, remedy}}
}

// refusedBy refuses because of an error whose remedy is to be found.
func refusedBy(err error) verdict {
	var mistakes redirect.Mistakes
	var unsupported *redirect.UnsupportedRuntime
	var foreign *program.ForeignError
	var unrecorded *program.RecordError
	var panicked *podns.Panic
	switch {
	case errors.As(err, &mistakes):
		return refusedFor(fmt.Errorf("read annotations: %w", err), badPod)
	case errors.As(err, &unsupported):
		return refusedFor(err, ownKernel)
	case errors.As(err, &foreign), errors.Is(err, iptables.ErrForeign):
		return refusedFor(err, foreignRules)
	case errors.As(err, &unrecorded):
		return refusedFor(err, badState)
	case errors.As(err, &panicked):
		return refusedFor(err, ownFault)
	}
	return refusedFor(err, kernelRefused)
}

// refusal is what the runtime is answered, and `kubectl describe pod` shows.
func (s sandbox) refusal(v verdict) error {
	remedy := ownFault
	if known, ok := errors.AsType[*refusedError](v.err); ok {
		remedy = known.remedy
	}
	return errors.New(refusal.Text(
		fmt.Errorf("sidecar-cni refused pod %s/%s: %w", s.pod.Namespace, s.pod.Name, v.err),
		string(remedy)))
}
