package repair

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// A subject is a pod that is ours, and what is known about it without looking into its namespace.
type subject struct {
	pod      *corev1.Pod
	records  []record.Record
	policy   redirect.Policy // that its annotations ask for now
	mistake  error           // they ask for something impossible
	excluded bool            // it would be ours in another namespace

	undecided bool          // the handler of its runtime class is not known
	skip      redirect.Skip // it has a sidecar, and would be left alone in any namespace
}

// errTooLarge is about a pod of which the cache keeps too little to know what it asks for. A
// record says it.
var errTooLarge = errors.New("its containers take more than the agent keeps of a pod")

// subject returns nil for a pod that is left alone.
func (r *Repairer) subject(pod *corev1.Pod, records []record.Record) *subject {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil
	if ended || pod.Spec.HostNetwork {
		return nil
	}
	s := &subject{pod: pod, records: r.recordsOf(records, pod.UID)}
	facts, cfg := agent.Describe(pod).Facts(), r.cfg.Redirect
	if class := facts.Spec.RuntimeClass; class != "" {
		facts.Spec.RuntimeHandler = r.deps.Handler(class)
	}
	for _, one := range s.records {
		facts.Nameservers = one.Policy.DNS.Servers // what only the runtime knew
	}
	if !agent.Complete(pod) {
		facts.Spec = nil // what it has is not known, which is more than that it has none
	}
	decision, err := redirect.Decide(facts, cfg)
	if decision.Skip == redirect.ExcludedNamespace {
		cfg.ExcludeNamespaces = nil
		s.excluded = true
		decision, err = redirect.Decide(facts, cfg)
	}
	if decision.AskMore {
		err = errTooLarge
	}
	if _, unsupported := errors.AsType[*redirect.UnsupportedRuntime](err); unsupported {
		decision.Skip, err = redirect.OwnKernel, nil
	}
	if decision.Skip != "" && !facts.NeedsRedirection() {
		return nil
	}
	s.policy, s.mistake, s.skip, s.undecided = decision.Policy, err, decision.Skip,
		decision.AskHandler
	return s
}

func (s *subject) result(f Finding, why string) Result {
	return Result{Namespace: s.pod.Namespace, Name: s.pod.Name, UID: s.pod.UID, Finding: f,
		Why: why}
}

// maxProblems is how many differences are kept of a pod; nobody reads ten thousand.
const maxProblems = 20

func (s *subject) altered(why string, problems []redirect.Problem) Result {
	result := s.result(Altered, why)
	result.Problems, result.Differ = slices.Clone(problems[:min(len(problems), maxProblems)]),
		len(problems)
	return result
}

// hasAddress reports whether the kubelet has seen the pod's network: then its ADD is over. After a
// reboot, when many pods start at once, it says so some seconds later, or of the sandbox before.
func hasAddress(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" || len(pod.Status.PodIPs) > 0
}
