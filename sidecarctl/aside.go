package main

import (
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
)

// aside is what may mislead somebody about a pod whatever becomes of it: annotations that no pod
// gets, rules of another time, a node that was not asked, and what else is not known.
func (s subject) aside() []finding {
	all := append(s.unknown(), s.misplaced()...)
	all = append(all, s.changed()...)
	for _, lack := range s.lacks {
		all = append(all, finding{What: "not all was learned from its node: " + lack,
			Remedy: "see by --entry and --nameserver what the node's own settings come to"})
	}
	return all
}

// unknown names what the pod's rules depend on and nobody knows here.
func (s subject) unknown() []finding {
	if s.mistake != nil || s.decision.Skip != "" {
		return nil
	}
	var all []finding
	if s.unsaid {
		all = append(all, finding{What: "DNS is captured, and the pod's nameservers are not " +
			"known here: the rules are shown for all of port 53",
			Remedy: "give them by --nameserver to see what a node does"})
	}
	if s.class != "" {
		all = append(all, finding{What: fmt.Sprintf("the handler of its runtime class %q is not "+
			"known here: shown is a pod of ordinary containers", s.class),
			Remedy: "see by `kubectl get runtimeclass` whether it has a kernel of its own: such a " +
				"pod is refused, unless the plugin's runtimeHandlers say otherwise"})
	}
	return all
}

// misplaced names the annotations of the object that has the template, or controls the pod, that
// would decide about a pod and are not the pod's.
func (s subject) misplaced() []finding {
	var all []finding
	for _, key := range redirect.Annotations() {
		value, there := s.pod.Outside[key]
		if _, has := s.facts.Annotations[key]; !there || has {
			continue
		}
		all = append(all, finding{
			What: fmt.Sprintf("%s: %q is an annotation of the %s itself, which no pod gets: it "+
				"does nothing", key, value, s.pod.Owner),
			Remedy: "move it into the template, under spec.template.metadata.annotations",
		})
	}
	return all
}

// mostChanges is how many of them are told; the first say what it is about.
const mostChanges = 3

// changed says how the rules that a pod got when it started differ from what it asks for now.
func (s subject) changed() []finding {
	const remedy = "delete the pod to have it created anew: annotations are read when it starts"
	switch {
	case s.record == nil || s.mistake != nil:
		return nil
	case s.decision.Skip != "":
		return []finding{{What: "it was redirected when it started, and is so still",
			Remedy: remedy}}
	}
	then, now := redirect.Compile(s.record.Policy), redirect.Compile(s.decision.Policy)
	if record.Revision(then) == record.Revision(now) {
		return nil
	}
	differences := compare.Compare(simulate.New(then), simulate.New(now))
	if len(differences) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(compare.Explain(differences, compare.Words{
		A: "what it has", B: "what it asks for now", Proxy: s.decision.Policy.Proxy})), "\n")
	text := "what it asks for has changed since it started, its rules have not: " +
		strings.Join(lines[:min(len(lines), mostChanges)], " ")
	if more := len(lines) - mostChanges; more > 0 {
		text += fmt.Sprintf(" And %d more.", more)
	}
	return []finding{{What: text, Remedy: remedy}}
}
