package inject

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Decision says whether a pod is injected, and why.
type Decision struct {
	Inject bool   // the pod gets a proxy
	Reason Reason // one of Reasons
}

// Reason is why a pod is or is not injected.
type Reason string

// The reasons, a closed list in the order in which they are looked for.
const (
	HostNetwork       Reason = "host_network"
	ExcludedNamespace Reason = "excluded_namespace"
	StaticPod         Reason = "static_pod"
	AlreadyInjected   Reason = "already_injected"
	LabelTrue         Reason = "label_true"
	LabelFalse        Reason = "label_false"
	AnnotationTrue    Reason = "annotation_true"
	AnnotationFalse   Reason = "annotation_false"
	NeverSelector     Reason = "never_selector"
	AlwaysSelector    Reason = "always_selector"
	PolicyEnabled     Reason = "policy_enabled"
	PolicyDisabled    Reason = "policy_disabled"
)

// Reasons lists them in their order.
var Reasons = []Reason{
	HostNetwork, ExcludedNamespace, StaticPod, AlreadyInjected, LabelTrue, LabelFalse,
	AnnotationTrue, AnnotationFalse, NeverSelector, AlwaysSelector, PolicyEnabled, PolicyDisabled,
}

var reasonWords = map[Reason]string{
	HostNetwork:       "it is in the node's network (hostNetwork), whose traffic is not the pod's",
	ExcludedNamespace: "its namespace is excluded",
	StaticPod:         "it stands for a static pod, which the API cannot change",
	AlreadyInjected: "it has the annotation " + redirect.StatusAnnotation +
		": it was injected before",
	LabelTrue:       "its label " + injectKey + " is true",
	LabelFalse:      "its label " + injectKey + " is false",
	AnnotationTrue:  "its annotation " + injectKey + " is true",
	AnnotationFalse: "its annotation " + injectKey + " is false",
	NeverSelector:   "its labels match neverInjectSelector",
	AlwaysSelector:  "its labels match alwaysInjectSelector",
	PolicyEnabled:   "the policy is enabled, and nothing else is said about the pod",
	PolicyDisabled:  "the policy is disabled, and nothing else is said about the pod",
}

// String says the reason in words.
func (r Reason) String() string { return reasonWords[r] }

// decide looks at what is said about a pod. Mistakes elsewhere in the pod do not count: one that is
// not injected is not held up by us.
//
// With a value of sidecar.istio.io/inject other than true or false, selectors and policy decide; a
// label with such a value still hides the annotation, as in today's Istio. Istio 1.1 took y, yes
// and on for true in any case of letters, and everything else, "or else" in the words of its
// documentation, for false.
func decide(cfg *config.Config, req Request) (Decision, []string) {
	annotations := podtree.Map(req.Pod, "metadata", "annotations")
	_, injected := annotations[redirect.StatusAnnotation]
	_, mirror := annotations[mirrorKey]
	hostNetwork, _ := podtree.Get(req.Pod, "spec", "hostNetwork").(bool)
	switch {
	case hostNetwork:
		return Decision{Reason: HostNetwork}, nil
	case slices.Contains(cfg.Settings.ExcludeNamespaces, req.namespace()):
		return Decision{Reason: ExcludedNamespace}, nil
	case mirror:
		return Decision{Reason: StaticPod}, nil
	case injected:
		return Decision{Reason: AlreadyInjected}, nil
	}
	asked, warnings := asked(req.Pod)
	if asked.Reason != "" {
		return asked, nil
	}
	of := labels.Set(podtree.Strings(req.Pod, "metadata", "labels"))
	switch {
	case matches(cfg.Never, of):
		return Decision{Reason: NeverSelector}, warnings
	case matches(cfg.Always, of):
		return Decision{Inject: true, Reason: AlwaysSelector}, warnings
	case cfg.Enabled:
		return Decision{Inject: true, Reason: PolicyEnabled}, warnings
	}
	return Decision{Reason: PolicyDisabled}, warnings
}

// asked reads what the pod itself says: its label, and its annotation only where it has no label.
func asked(pod podtree.Object) (Decision, []string) {
	for _, place := range []struct {
		field, word string
		yes, no     Reason
	}{
		{"labels", "label", LabelTrue, LabelFalse},
		{"annotations", "annotation", AnnotationTrue, AnnotationFalse},
	} {
		switch value := podtree.Get(pod, "metadata", place.field, injectKey); value {
		case nil:
			continue
		case "true":
			return Decision{Inject: true, Reason: place.yes}, nil
		case "false":
			return Decision{Reason: place.no}, nil
		default:
			return Decision{}, []string{fmt.Sprintf("%s %s: %.64q: want true or false; the "+
				"selectors and the policy decide", place.word, injectKey, fmt.Sprint(value))}
		}
	}
	return Decision{}, nil
}

// matches reports whether one of the selectors does.
func matches(selectors []labels.Selector, of labels.Set) bool {
	return slices.ContainsFunc(selectors, func(s labels.Selector) bool {
		return s.Matches(of)
	})
}
