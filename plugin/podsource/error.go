package podsource

import (
	"errors"
	"fmt"
	"time"
)

// Class says why a pod was not found, for those who count and for those who act on it.
type Class string

// The classes.
const (
	// there is no such pod, or another one under its name: the sandbox is stale
	Gone   Class = "gone"
	Denied Class = "denied" // the API server refuses the plugin's credential
	// the API server, or what answers in its place, refuses the request itself
	Rejected    Class = "rejected"
	BadConfig   Class = "bad_config"  // there is no kubeconfig that can be used
	Unreachable Class = "unreachable" // no source answered in time
)

var classes = map[verdict]Class{
	away:          Unreachable,
	undecided:     Unreachable,
	absent:        Gone,
	unauthorized:  Denied,
	forbidden:     Denied,
	rejected:      Rejected,
	misconfigured: BadConfig,
}

var classWords = map[Class]string{
	Gone:        "the pod is gone",
	Denied:      "access denied",
	Rejected:    "request rejected",
	BadConfig:   "no usable kubeconfig",
	Unreachable: "no source answered",
}

// Error is a pod, or its runtime class, that was not found. Its text is for whoever reads `kubectl
// describe pod` at night.
type Error struct {
	Class      Class         // why it was not found
	What       string        // such as "pod shop/web-0"
	Took       time.Duration // since the first question
	Agent, API error         // what each source said last
	Remedy     string        // what to do, for people
}

func (e *Error) Error() string {
	return fmt.Sprintf("read %s (%v): %s: agent: %v; API server: %v; remedy: %s", e.What,
		e.Took.Round(time.Millisecond), classWords[e.Class], e.Agent, e.API, e.Remedy)
}

// staleWarning is what is said if the pod's file stood in for the sources that failed so.
func (e *Error) staleWarning() string {
	return fmt.Sprintf("%s (%v): used the agent's file of the pod, which is stale: agent: %v; "+
		"API server: %v; remedy: %s", e.What, e.Took.Round(time.Millisecond), e.Agent, e.API,
		e.Remedy)
}

// Unwrap returns what the sources said.
func (e *Error) Unwrap() []error { return []error{e.Agent, e.API} }

var (
	errNotAsked  = errors.New("not asked")
	errNoHandler = errors.New("it does not know the handler of that class")
	errSilent    = errors.New("no answer in time")
	errBroken    = errors.New("the connection broke off before the answer was whole")
	errAbsent    = errors.New("there is no such pod")
	errNotClass  = errors.New("what it answers is not the runtime class that was asked for")
	errNoClass   = errors.New("there is no such runtime class")
	errNonsense  = errors.New("what it answers is not the pod that was asked for")
)

// What to do, in an administrator's words.
const (
	badRefRemedy = "check K8S_POD_NAMESPACE and K8S_POD_NAME in what the runtime passes as CNI_ARGS"
	goneRemedy   = "none is needed if it was deleted or created anew: the kubelet clears " +
		"this sandbox away; else delete the pod"
	credentialRemedy = "check that the sidecar-cni agent runs on this node: it writes kubeconfig " +
		"and token, and renews them"
	accountRemedy = "check that the sidecar-cni agent runs on this node; if sidecar-cni was " +
		"deleted, its account is gone and this node " +
		"was not taken out: install it again and uninstall it in order, or take sidecar-cni out " +
		"of the chain by hand"
	noClassRemedy  = "create the runtime class, or have the pod name another one"
	rightRemedy    = "allow %s to get %s, as the chart's ClusterRole sidecar-cni-plugin does"
	serverRemedy   = "check that %s, in kubeconfig %s, is the Kubernetes API server"
	overloadRemedy = "wait for the API server, the kubelet tries again; or check that the " +
		"sidecar-cni agent runs on this node"
	reachRemedy = "check that the sidecar-cni agent runs on this node, or that the node " +
		"reaches %s; the kubelet tries again"
	caRemedy         = "check that %s is of the API server's CA; the sidecar-cni agent writes it"
	serverNameRemedy = "check server and tls-server-name in kubeconfig %s"
	clockRemedy      = "check the node's clock, and until when the API server's certificate is " +
		"valid"
)
