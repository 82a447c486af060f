package repair

import (
	"errors"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// A subject is a pod that is ours, and what is known about it without looking into its namespace.
type subject struct {
	pod    *corev1.Pod
	known  audit.Pod
	judged *audit.Judgement // what it is whatever its namespace has; nil: that is looked into
}

// errTooLarge is about a pod of which the cache keeps too little to know what it asks for. A
// record says it.
var errTooLarge = errors.New("its containers take more than the agent keeps of a pod")

// subject returns nil for a pod that is left alone.
func (r *Repairer) subject(pod *corev1.Pod, heads []record.Record) *subject {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil
	if ended || pod.Spec.HostNetwork {
		return nil
	}
	records := audit.RecordsOf(r.cfg.Records, heads, string(pod.UID))
	facts := agent.Describe(pod).Facts()
	if class := facts.Spec.RuntimeClass; class != "" {
		facts.Spec.RuntimeHandler = r.deps.Handler(class)
	}
	for _, one := range records {
		facts.Nameservers = one.Policy.DNS.Servers // what only the runtime knew
	}
	if !agent.Complete(pod) {
		facts.Spec = nil // what it has is not known, which is more than that it has none
	}
	expected, ours := audit.Expect(facts, r.cfg.Redirect)
	if !ours {
		return nil
	}
	if errors.Is(expected.Mistake, audit.ErrIncomplete) {
		expected.Mistake = errTooLarge
	}
	return &subject{pod: pod, judged: expected.Judged, known: audit.Pod{
		UID: string(pod.UID), Addrs: addresses(pod), Records: records,
		Policy: expected.Policy, Mistake: expected.Mistake,
	}}
}

func (s *subject) result(j audit.Judgement) Result {
	return Result{Namespace: s.pod.Namespace, Name: s.pod.Name, UID: s.pod.UID,
		Finding: j.Finding, Why: j.Why, Skip: j.Skip,
		Problems: j.Problems, Differ: j.Differ, Unhit: j.Unhit}
}

// found is the result of a pod that was not judged.
func (s *subject) found(f Finding, why string) Result {
	return s.result(audit.Judgement{Finding: f, Why: why})
}

func addresses(pod *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, addr)
		}
	}
	return all
}

// hasAddress reports whether the kubelet has seen the pod's network: then its ADD is over. After a
// reboot, when many pods start at once, it says so some seconds later, or of the sandbox before.
func hasAddress(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" || len(pod.Status.PodIPs) > 0
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
