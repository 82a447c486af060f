package redirect

import (
	"fmt"
	"strings"
)

// RuntimeHandlers says, by patterns of handlers, what becomes of a pod that is ours and whose
// runtime may have a kernel or a network stack of its own: Kata's virtual machines take their
// traffic from the interface itself, gVisor keeps it in its own stack. Neither meets rules in the
// pod's network namespace. A * at the end of a pattern stands for anything; of several patterns
// that fit, the longest counts, but the handler's own name comes first.
type RuntimeHandlers map[string]HandlerAction

// HandlerAction is what becomes of such a pod.
type HandlerAction string

// The actions.
const (
	Refuse HandlerAction = "refuse" // it does not start
	// it starts without redirection, and its owner learns of it by an Event
	Leave HandlerAction = "skip"
	// it is redirected like any other: its handler runs ordinary containers
	Allow HandlerAction = "allow"
)

// HandlerActions lists them.
var HandlerActions = []HandlerAction{Refuse, Leave, Allow}

// Action returns what becomes of a pod with a handler. One that no pattern fits runs ordinary
// containers.
func (h RuntimeHandlers) Action(handler string) HandlerAction {
	if action, ok := h[handler]; ok {
		return action
	}
	action, longest := Allow, -1
	for pattern, a := range h {
		stem, ok := strings.CutSuffix(pattern, "*")
		if ok && len(stem) > longest && strings.HasPrefix(handler, stem) {
			action, longest = a, len(stem)
		}
	}
	return action
}

// allowAll reports whether no handler could make a difference.
func (h RuntimeHandlers) allowAll() bool {
	for _, a := range h {
		if a != Allow {
			return false
		}
	}
	return true
}

// UnsupportedRuntime is the error of a pod that is ours and whose runtime never meets our rules.
type UnsupportedRuntime struct {
	Class, Handler string // the pod's runtime class, and its handler
}

func (e *UnsupportedRuntime) Error() string {
	return fmt.Sprintf("runtime class %q has the handler %q, whose pods have a kernel or network "+
		"stack of their own: "+
		"rules in their network namespace redirect nothing", e.Class, e.Handler)
}

// decideRuntime returns what the runtime alone decides: the zero decision says that it is one like
// any other.
func (s *Spec) decideRuntime(cfg Config) (Decision, error) {
	if s.RuntimeClass == "" || cfg.RuntimeHandlers.allowAll() {
		return Decision{}, nil
	}
	if s.RuntimeHandler == "" {
		return Decision{AskHandler: true}, nil
	}
	unsupported := &UnsupportedRuntime{s.RuntimeClass, s.RuntimeHandler}
	switch cfg.RuntimeHandlers.Action(s.RuntimeHandler) {
	case Refuse:
		return Decision{}, unsupported
	case Leave:
		return Decision{Skip: OwnKernel, Notices: []string{
			"its traffic goes past the sidecar: " + unsupported.Error(),
		}}, nil
	case Allow:
	}
	return Decision{}, nil
}
