package inject

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
)

// validate puts the container before all others that keeps the pod from starting where it is not
// redirected. Whether it would be depends on the mode, on istio-init, and on the status, which
// therefore are settled before; the status names the container, too.
func (in *injection) validate() error {
	if in.req.Validation == nil {
		return nil
	}
	if err := validation.Add(in.pod, *in.req.Validation); err != nil {
		return err
	}
	known := slices.Contains(in.given.init, validationName)
	if known || containerOf(in.pod, validationName) == nil {
		return nil
	}
	in.given.init = slices.Insert(in.given.init, 0, validationName)
	return in.writeStatus()
}

// renewValidation has the container be the first again, and be the proxy to the rules, in a pod
// that was injected before: a webhook that was called after us may have put another container
// before it, or changed the users. A pod that cannot be mended so is not held up: the container
// itself will find the pod not redirected.
func renewValidation(decision Decision, req Request) Result {
	result := Result{Decision: decision, Pod: req.Pod}
	if req.Validation == nil || !validation.Has(req.Pod) {
		return result
	}
	pod := podtree.Clone(req.Pod)
	if err := validation.Renew(pod, *req.Validation); err != nil {
		result.Warnings = []string{fmt.Sprintf("renew init container %s: %v", validationName, err)}
		return result
	}
	if !reflect.DeepEqual(pod, req.Pod) {
		result.Pod = pod
	}
	return result
}
