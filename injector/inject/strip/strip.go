// Package strip takes istio-init out of pods, and puts what its flags say into annotations, so that
// the plugin redirects what istio-init redirected.
//
//	stripped, found, err := strip.Strip(pod, redirect.Defaults())
//	var refusal *strip.Refusal
//	if errors.As(err, &refusal) { // istio-init stays
//
// Be aware: a pod without the annotation sidecar.istio.io/status is not redirected. Strip assumes
// that its caller sees to the annotation, and that no node excludes the pod's namespace.
// Which handler a runtime class has is known to the cluster only: the name of the class is taken
// for it. Volumes that nothing but istio-init mounted stay, and do no harm.
package strip

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

const initContainer = redirect.InitContainer

// Refusal says why istio-init has to stay.
type Refusal struct {
	Reasons []string // each names the field and what to do
}

func (r *Refusal) Error() string {
	return "remove " + initContainer + ": " + strings.Join(r.Reasons, "; ")
}

const (
	maxReasons = 20   // that are named
	maxQuoted  = 1000 // bytes of a text of the pod's in a reason
)

// reason words one. Texts of the pod's may be long, and are cut.
func reason(format string, args ...any) string {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			arg = err.Error()
		}
		if s, ok := arg.(string); ok && len(s) > maxQuoted {
			arg = strings.ToValidUTF8(s[:maxQuoted], "") + "..."
		}
		args[i] = arg
	}
	return fmt.Sprintf(format, args...)
}

// Strip returns the pod without istio-init, and whether it had one. The pod that it is given does
// not change. A container that cannot leave is a *Refusal, and the pod comes back as it was.
//
// The policy of the pod is then, by redirect.Decide, what the flags said, but for three things: the
// nameservers, which only the node knows; the ports that cfg always leaves open; and the users that
// annotations under sidecar-cni.io exclude, for which istio-init has no flag. What istio-init is
// not told is what it does by itself, whatever cfg has instead.
func Strip(pod podtree.Object, cfg redirect.Config) (
	stripped podtree.Object, found bool, err error) {
	stripped, found, err = Owned(pod, cfg)
	if found && err == nil {
		stripped = podtree.Clone(stripped)
	}
	return stripped, found, err
}

// Owned is Strip for a pod that is the caller's own: what comes back may have parts of it.
func Owned(pod podtree.Object, cfg redirect.Config) (
	stripped podtree.Object, found bool, err error) {
	named := func(list string) int {
		return podtree.Named(podtree.List(pod, "spec", list), initContainer)
	}
	at := named("initContainers")
	if at < 0 && named("containers") < 0 {
		return pod, false, nil
	}
	cfg.ExcludeNamespaces, cfg.Agent = nil, redirect.Agent{}
	stripped, reasons := without(pod, at, cfg)
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], reason("and %d more of this kind", more))
	}
	if len(reasons) > 0 {
		return pod, true, &Refusal{reasons}
	}
	return stripped, true, nil
}

// without returns the pod without its init container at an index, or why that cannot be.
func without(pod podtree.Object, at int, cfg redirect.Config) (podtree.Object, []string) {
	if at < 0 {
		return nil, []string{reason("it is among the containers, where it is not expected: "+
			"make %q an init container, or rename it", initContainer)}
	}
	inits := podtree.List(pod, "spec", "initContainers")
	command, reasons := readCommand(inits[at].(podtree.Object))
	if len(reasons) > 0 {
		return nil, reasons
	}
	stripped := drop(pod, at)
	facts, err := factsOf(stripped)
	if err != nil {
		return nil, []string{reason("read the pod: %v: correct the field", err)}
	}
	asked := asks(facts, cfg)
	reasons = append(beyondReach(stripped, cfg), command.annotate(stripped, asked)...)
	reasons = append(reasons, command.bypass(stripped, facts.Spec, asked, at)...)
	if len(reasons) > 0 {
		return nil, reasons
	}
	// Nothing else of the facts has changed since.
	maps.Copy(facts.Annotations, podtree.Strings(stripped, "metadata", "annotations"))
	return stripped, command.judge(facts, cfg, asked.open)
}

// drop returns the pod without an init container, and without the list if it was the only one. What
// is changed afterwards, the annotations, is a copy, too; the rest is the pod's.
func drop(pod podtree.Object, at int) podtree.Object {
	pod = maps.Clone(pod)
	for _, path := range [][]string{{"spec"}, {"metadata"}, {"metadata", "annotations"}} {
		if part := podtree.Map(pod, path...); part != nil {
			podtree.Set(pod, maps.Clone(part), path...)
		}
	}
	inits := slices.Clone(podtree.List(pod, "spec", "initContainers"))
	if len(inits) == 1 {
		podtree.Delete(pod, "spec", "initContainers")
		return pod
	}
	podtree.Set(pod, slices.Delete(inits, at, at+1), "spec", "initContainers")
	return pod
}

// factsOf returns what decides about a pod once it is stripped. The handler is left out:
// beyondReach looks at the class.
func factsOf(pod podtree.Object) (redirect.Pod, error) {
	facts, err := podtree.Facts(pod)
	if err != nil {
		return redirect.Pod{}, err
	}
	facts.Spec.RuntimeClass = ""
	facts.Nameservers = nameservers()
	if !facts.Injected() {
		facts.Annotations[redirect.StatusAnnotation] = "{}"
	}
	return facts, nil
}

// nameservers stand in on both sides for those that only the node knows. Any would do: with some,
// the policy shows whether DNS is captured everywhere.
func nameservers() []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 53})} }

// beyondReach says why the plugin's rules would not meet the pod's traffic.
func beyondReach(pod podtree.Object, cfg redirect.Config) (reasons []string) {
	if host, _ := podtree.Get(pod, "spec", "hostNetwork").(bool); host {
		reasons = append(reasons, "spec.hostNetwork is true: nothing redirects the traffic of "+
			"such a pod, and istio-init would redirect the node's: remove istio-init and the proxy")
	}
	class := podtree.String(pod, "spec", "runtimeClassName")
	if class != "" && cfg.RuntimeHandlers.Action(class) != redirect.Allow {
		reasons = append(reasons, reason("spec.runtimeClassName is %q: its pods have a kernel "+
			"or a network stack of their own, which no rules of the node reach: leave istio-init "+
			"in, or use another class", class))
	}
	return reasons
}

// judge compares what a pod without istio-init is decided to be with what istio-init does.
func (c *command) judge(facts redirect.Pod, cfg redirect.Config, open []uint16) (reasons []string) {
	decision, err := redirect.Decide(facts, cfg)
	var mistakes redirect.Mistakes
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			reasons = append(reasons, c.explain(m))
		}
		return reasons
	case err != nil:
		return []string{reason("without it the pod is refused: %v", err)}
	case decision.Skip != "":
		return []string{reason("without it the pod is not redirected, since %s: mend that, or "+
			"leave istio-init in", decision.Skip.String())}
	}
	was, would := c.policy, decision.Policy
	relevant(&was, &would, open)
	return c.differences(&was, &would)
}
