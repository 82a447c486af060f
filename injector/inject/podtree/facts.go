package podtree

import (
	"cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// Facts reads what decides about a pod's redirection. Of a workload's template the name and the
// namespace may come later: it counts as pod "pod" in namespace "default" until then.
func Facts(o Object) (redirect.Pod, error) {
	var typed kubepod.Pod
	if err := Into(o, &typed); err != nil {
		return redirect.Pod{}, err
	}
	facts := typed.Facts()
	facts.Name = cmp.Or(facts.Name, "pod")
	facts.Namespace = cmp.Or(facts.Namespace, "default")
	return facts, nil
}
