package audit

import (
	"errors"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Expectation is what a pod should have, by what is known without looking into its namespace.
type Expectation struct {
	Policy  redirect.Policy // what it asks for
	Mistake error           // why Policy is not known: it asks for something impossible
	Judged  *Judgement      // what it is whatever its namespace has; nil: look into that
}

// ErrIncomplete is the Mistake of a pod of which too little is known to say what it asks for.
var ErrIncomplete = errors.New("only a part of the pod is known")

// Expect says what a pod should have. A pod that is none of ours, and needs no redirection, is not
// ours: what its istio-init programs is nobody else's business. A pod in the host's network is the
// caller's to leave out.
func Expect(pod redirect.Pod, cfg redirect.Config) (e Expectation, ours bool) {
	excluded := false
	decision, err := redirect.Decide(pod, cfg)
	if decision.Skip == redirect.ExcludedNamespace {
		cfg.ExcludeNamespaces = nil
		excluded = true
		decision, err = redirect.Decide(pod, cfg)
	}
	if decision.AskMore {
		err = ErrIncomplete
	}
	if _, unsupported := errors.AsType[*redirect.UnsupportedRuntime](err); unsupported {
		decision.Skip, err = redirect.OwnKernel, nil
	}
	if decision.Skip != "" && !pod.NeedsRedirection() {
		return e, false
	}
	e = Expectation{Policy: decision.Policy, Mistake: err}
	switch {
	case decision.Skip != "":
		e.Judged = &Judgement{Finding: Skipped, Skip: decision.Skip,
			Why: "it has a sidecar, and sidecar-cni leaves it alone: " + decision.Skip.String()}
	case excluded:
		e.Judged = &Judgement{Finding: Excluded,
			Why: "it has a sidecar, and its namespace is one that sidecar-cni leaves alone: " +
				"nothing redirects its traffic to the sidecar"}
	case decision.AskHandler:
		e.Judged = &Judgement{Finding: Unreachable,
			Why: fmt.Sprintf("the handler of its runtime class %q is not known: it may have a "+
				"kernel of its own", pod.Spec.RuntimeClass)}
	}
	return e, true
}
