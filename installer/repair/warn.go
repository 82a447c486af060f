package repair

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The reasons of Events, as `kubectl describe pod` shows them. What is behind each stands in
// docs/signals.md.
const (
	notRedirected = "SidecarNotRedirected"     // the pod runs without redirection
	repairedLate  = "SidecarRedirectedLate"    // the pod started without redirection; it has it now
	repairFailed  = "SidecarRepairFailed"      // the pod could be neither redirected nor evicted
	evictedPod    = "SidecarPodEvicted"        // the pod ran without redirection: it was evicted
	rulesAltered  = "SidecarRulesAltered"      // the pod's rules are not those that were programmed
	rulesForeign  = "SidecarRulesForeign"      // rules redirect it that the agent does not know
	leftAlone     = "SidecarNamespaceExcluded" // it has a sidecar, and its namespace is excluded
)

// warn writes the Event about a pod. What somebody may have wanted is reported once, what is wrong
// at each pass: Events expire. Of a Skipped pod there is none: it is left alone because of what its
// own author wrote.
func (r *Repairer) warn(pod *corev1.Pod, x *Result) {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID}
	switch known := r.last[x.UID] == x.Finding; {
	case x.Finding == Missing:
		reason, message := x.event()
		r.deps.Events.Warn(about, reason, message)
	case x.Finding == Altered:
		r.deps.Events.Warn(about, rulesAltered, fmt.Sprintf("%s: %d differ, the first: %s; "+
			"remedy: find out who changes them, and delete the pod to have it created anew",
			x.Why, x.Differ, x.Problems[0]))
	case x.Finding == Excluded && !known:
		r.deps.Events.Warn(about, leftAlone, x.Why+"; remedy: move the pod, or take the "+
			"namespace off the list of excluded ones")
	case x.Finding == Foreign && !known:
		r.deps.Events.Note(about, rulesForeign, x.Why)
	}
}

// event says what became of a pod without redirection.
func (x *Result) event() (reason, message string) {
	switch x.Outcome {
	case Repaired:
		return repairedLate, "the pod started without redirection, and sidecar-cni has " +
			"redirected it now: " +
			"connections that were opened before go on past the sidecar until they end; remedy: " +
			"restart the pod (delete it to have it created anew)"
	case Failed:
		return repairFailed, fmt.Sprintf("%s, and that was not mended: %s", x.Why, oneLine(x.Err))
	case Evicted:
		return evictedPod, x.Why + ": sidecar-cni has evicted it, so that it is created anew"
	case Reported, Deferred, Spared:
	}
	return notRedirected, x.Why + ": its traffic goes past the sidecar; remedy: delete the pod " +
		"to have it created anew"
}
