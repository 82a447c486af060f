package review

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/patch"
)

// inject decides about a pod and puts the proxy into it.
func (r *Reviewer) inject(req *request) *answer {
	cfg, err := r.of.Config()
	if err != nil {
		a := fail(http.StatusInternalServerError, noConfiguration, clip(fmt.Sprintf(
			"sidecar-cni-injector has no configuration yet: %v", err), maxDenial))
		a.err = err
		return a
	}
	of, name := workloadOf(req.pod)
	result, err := inject.Inject(cfg, inject.Request{
		Pod: req.pod, Namespace: req.namespace, Type: of,
		Workload:   metav1.ObjectMeta{Name: name, Namespace: req.namespace},
		Validation: r.of.Validation,
	})
	reason := string(result.Decision.Reason)
	if err != nil {
		return &answer{outcome: denied, reason: mistakeOfPod, warnings: result.Warnings,
			denial: fmt.Sprintf("inject pod: %v; mend this, or have the pod left out by its label "+
				"sidecar.istio.io/inject: \"false\"", err)}
	}
	text, err := patch.Between(req.pod, result.Pod)
	switch {
	case err != nil:
		return brokenBy(fmt.Errorf("write patch: %w", err))
	case text == nil:
		return stay(reason, result.Warnings...)
	case !result.Decision.Inject: // we were asked again, since another webhook has changed the pod
		reason = validationMoved
	}
	return &answer{outcome: injected, reason: reason, patch: text, warnings: result.Warnings}
}
