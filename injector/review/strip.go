package review

import (
	"errors"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/strip"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
	"github.com/sidecar-cni/sidecar-cni/injector/patch"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// strip takes istio-init out of a pod. Where it cannot, istio-init does its work.
func (r *Reviewer) strip(req *request) *answer {
	pod, found, err := strip.Strip(req.pod, redirect.Defaults())
	switch {
	case !found && err == nil:
		return r.renewValidation(req)
	case !isInjected(req.pod):
		return stay(notInjected)
	case err != nil:
		return r.leave(req.pod, err)
	}
	podtree.Set(pod, "true", "metadata", "annotations", redirect.StrippedAnnotation)
	if r.of.Validation != nil {
		if err := validation.Renew(pod, *r.of.Validation); err != nil {
			return r.leave(req.pod, fmt.Errorf("add init container %s: %w", validation.Name, err))
		}
	}
	text, err := patch.Between(req.pod, pod)
	if err != nil {
		return r.leave(req.pod, fmt.Errorf("write patch: %w", err))
	}
	return &answer{outcome: stripped, reason: initRemoved, patch: text}
}

// leave has a pod start with istio-init, and says why. Our own init container, if it was put in
// when we were asked before, leaves: nothing redirects the pod before istio-init runs.
func (r *Reviewer) leave(pod podtree.Object, why error) *answer {
	a := kept(why)
	if r.of.Validation == nil || !hasInit(pod, validation.Name) {
		return a
	}
	now := podtree.Clone(pod)
	err := validation.Add(now, *r.of.Validation)
	if err == nil {
		a.patch, err = patch.Between(pod, now)
	}
	if err != nil {
		a.err = errors.Join(a.err, fmt.Errorf("remove init container %s: %w", validation.Name, err))
	}
	return a
}

// kept says why istio-init stays.
func kept(err error) *answer {
	a := &answer{outcome: left}
	const kept = "istio-init stays in the pod: "
	var refusal *strip.Refusal
	if !errors.As(err, &refusal) {
		a.reason, a.err, a.warnings = mistake, err, []string{kept + err.Error()}
		return a
	}
	a.reason = refused
	for _, reason := range refusal.Reasons {
		a.warnings = append(a.warnings, kept+reason)
	}
	return a
}

func hasInit(pod podtree.Object, name string) bool {
	return podtree.Named(podtree.List(pod, "spec", "initContainers"), name) >= 0
}

// renewValidation answers about a pod without istio-init. If our init container is in it, we are
// asked again, since another webhook has changed the pod: the container goes back to the front, and
// runs as the proxy's user.
func (r *Reviewer) renewValidation(req *request) *answer {
	a := stay(noInit)
	if r.of.Validation == nil || !validation.Has(req.pod) || !isInjected(req.pod) {
		return a
	}
	now := podtree.Clone(req.pod)
	if err := validation.Renew(now, *r.of.Validation); err != nil {
		// It stays as it is, and lets nothing of the pod start where nothing redirects it.
		a.warnings = []string{fmt.Sprintf("renew init container %s: %v", validation.Name, err)}
		return a
	}
	text, err := patch.Between(req.pod, now)
	switch {
	case err != nil:
		a.err = fmt.Errorf("write patch: %w", err)
	case text != nil:
		a.outcome, a.reason, a.patch = stripped, validationMoved, text
	}
	return a
}

func isInjected(pod podtree.Object) bool {
	return podtree.Get(pod, "metadata", "annotations", redirect.StatusAnnotation) != nil
}
