package redirect

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Pod holds the facts of a pod that decide about its traffic. Whoever knows only a part of them
// leaves the rest nil: the runtime passes the annotations, the API server has it all. Whoever
// knows a part from each of them puts what the runtime passed in place of what the object says: the
// kubelet acts on that, and the author of a pod cannot write it.
type Pod struct {
	Namespace, Name string // if either is empty, the call names no pod
	// the kubelet has it from a file or an address, not from the API server
	Static      bool
	Annotations map[string]string // nil: not known; the kubelet sets some on every pod
	Spec        *Spec             // nil: not known
	Nameservers []netip.Addr      // nil: not known
}

// Spec is the part of a pod that only the API server knows.
type Spec struct {
	Labels map[string]string // nil: none

	// The pod's security context, for containers without one; nil: not set.
	RunAsUser  *int64
	RunAsGroup *int64

	RuntimeClass   string      // "": the node's usual runtime
	RuntimeHandler string      // of that class; "": not known
	Containers     []Container // init containers first, in their order
}

// Container is a container of a pod.
type Container struct {
	Name    string            // istio-proxy is the proxy's
	Init    bool              // an init container; with Stays, a native sidecar
	Stays   bool              // restartPolicy Always
	Args    []string          // as in the manifest; only the proxy's decide
	Env     map[string]string // variables with a value in the manifest; only the proxy's decide
	EnvFrom []string          // variables with a value that only the kubelet will know

	// Of the container's security context; nil: the pod's counts.
	RunAsUser  *int64
	RunAsGroup *int64
}

// Skip says why a pod is not ours.
type Skip string

// The reasons, a closed list in the order in which they are looked for.
const (
	NotAPod           Skip = "not_a_pod"
	StaticPod         Skip = "static_pod"
	ExcludedNamespace Skip = "excluded_namespace"
	OwnAgent          Skip = "own_agent"
	InitRestored      Skip = "init_container_restored"
	HasIstioInit      Skip = "has_istio_init"
	ProxyDisabled     Skip = "proxy_disabled"
	NoProxy           Skip = "no_proxy"
	NotASidecar       Skip = "not_a_sidecar"
	InjectionDisabled Skip = "injection_disabled"
	NotInjected       Skip = "not_injected"
	InterceptionNone  Skip = "interception_none"
	OwnKernel         Skip = "own_kernel"
)

// Skips lists the reasons in their order.
var Skips = []Skip{
	NotAPod, StaticPod, ExcludedNamespace, OwnAgent, InitRestored, HasIstioInit, ProxyDisabled,
	NoProxy, NotASidecar, InjectionDisabled, NotInjected, InterceptionNone, OwnKernel,
}

var skipWords = map[Skip]string{
	NotAPod:           "the call does not name a Kubernetes pod",
	StaticPod:         "a static pod: it has no annotations in the API server when it starts",
	ExcludedNamespace: "its namespace is excluded",
	OwnAgent:          "it is the node agent itself",
	InitRestored: "its " + istioInit + " container programs the rules: a webhook added it again " +
		"after ours had removed it",
	HasIstioInit:      "its " + istioInit + " container programs the rules",
	ProxyDisabled:     envDisableEnvoy + " is set: there is no proxy to redirect to",
	NoProxy:           "it has no container " + proxyContainer,
	NotASidecar:       "its proxy is not a sidecar but a gateway",
	InjectionDisabled: keyInject + " says no",
	NotInjected:       "it has no annotation " + StatusAnnotation + ": nothing was injected",
	InterceptionNone:  keyMode + " is NONE",
	OwnKernel: "its runtime has a kernel or a network stack of its own, which meets no " +
		"rules of its namespace",
}

// String says the reason in words.
func (s Skip) String() string { return skipWords[s] }

// Decision is what becomes of a pod. Exactly one holds: it is skipped, more facts are needed, or it
// is ours.
type Decision struct {
	Skip       Skip     // not ours, for this reason
	AskMore    bool     // the facts at hand do not suffice: come back with the whole pod
	AskHandler bool     // come back with the handler of the pod's runtime class
	Policy     Policy   // ours
	Warnings   []string // for whoever reads the log
	Notices    []string // for whoever runs the pod: part of its traffic is not redirected
}

const (
	proxyContainer      = "istio-proxy"
	istioInit           = "istio-init"
	validationContainer = "istio-validation"
)

// Decide says whether a pod is ours and what it asks for. A pod that is not ours is never an error,
// whatever else is wrong with it; the mistakes of one that is ours come all at once, as Mistakes.
// One that is ours and whose runtime never meets our rules is an *UnsupportedRuntime, unless the
// configuration says otherwise.
//
// A skip on a part of the facts is a skip on all of them: what a part does not decide is AskMore.
func Decide(pod Pod, cfg Config) (Decision, error) {
	if skip := pod.skip(cfg); skip != "" {
		return Decision{Skip: skip}, nil
	}
	if pod.Spec == nil || pod.Annotations == nil {
		return Decision{AskMore: true}, nil
	}
	if d, err := pod.Spec.decideRuntime(cfg); err != nil || d.AskHandler || d.Skip != "" {
		return d, err
	}
	return parsePod(pod, cfg)
}

// skip returns the first reason among the facts at hand.
func (p Pod) skip(cfg Config) Skip {
	switch {
	case p.Name == "" || p.Namespace == "":
		return NotAPod
	case p.Static:
		return StaticPod
	case slices.Contains(cfg.ExcludeNamespaces, p.Namespace):
		return ExcludedNamespace
	case cfg.Agent.owns(p):
		return OwnAgent
	}
	if skip := p.Spec.skip(cfg); skip == HasIstioInit && p.stripped() {
		return InitRestored
	} else if skip != "" {
		return skip
	}
	if p.injectionDisabled() {
		return InjectionDisabled
	}
	if p.Annotations != nil && !p.Injected() {
		return NotInjected
	}
	if p.Annotations != nil && cfg.value(p.Annotations, keyMode) == string(ModeNone) {
		return InterceptionNone
	}
	return ""
}

// stripped reports whether our webhook has taken istio-init out of the pod.
func (p Pod) stripped() bool { return p.Annotations[StrippedAnnotation] == "true" }

// Injected reports whether the annotations say that a sidecar was injected.
func (p Pod) Injected() bool {
	_, ok := p.Annotations[StatusAnnotation]
	return ok
}

// NeedsRedirection reports whether the pod has a sidecar and leaves it to others to redirect
// traffic there: it was injected, it has a proxy, and no container of its own programs the rules.
// If such a pod is skipped, its traffic passes the sidecar by.
func (p Pod) NeedsRedirection() bool {
	if p.Spec == nil || !p.Injected() {
		return false
	}
	_, proxy := p.Spec.proxy()
	_, initialized := p.Spec.container(istioInit)
	return proxy && !initialized
}

// owns recognises the DaemonSet's pods by their name: a node that has no agent must not ask an
// agent about them.
func (a Agent) owns(p Pod) bool {
	return a.Name != "" && p.Namespace == a.Namespace && strings.HasPrefix(p.Name, a.Name+"-")
}

func (s *Spec) skip(cfg Config) Skip {
	if s == nil {
		return ""
	}
	if _, ok := s.container(istioInit); ok {
		return HasIstioInit
	}
	proxy, ok := s.proxy()
	if disabled, err := strconv.ParseBool(cfg.value(proxy.Env, envDisableEnvoy)); ok &&
		err == nil && disabled {
		return ProxyDisabled
	}
	if !ok {
		return NoProxy
	}
	if len(proxy.Args) > 1 && proxy.Args[0] == "proxy" && proxy.Args[1] != "sidecar" {
		return NotASidecar
	}
	return ""
}

// proxy returns the container of the proxy: an ordinary one, or a native sidecar.
func (s *Spec) proxy() (Container, bool) {
	c, ok := s.container(proxyContainer)
	if !ok || c.Init && !c.Stays {
		return Container{}, false
	}
	return c, true
}

func (s *Spec) container(name string) (Container, bool) {
	i := slices.IndexFunc(s.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return Container{}, false
	}
	return s.Containers[i], true
}

// injectionDisabled reads the label, else the annotation, for exactly "false": any other value
// leaves it to the injector, whose status annotation says what it did. The label outranks the
// annotation, so without the labels nothing is known.
func (p Pod) injectionDisabled() bool {
	if p.Spec == nil {
		return false
	}
	value, ok := p.Spec.Labels[keyInject]
	if !ok {
		value = p.Annotations[keyInject]
	}
	return value == "false"
}
