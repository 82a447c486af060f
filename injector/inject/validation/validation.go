// Package validation puts an init container into a pod that lets nothing of it start where the
// pod's traffic is not redirected: on a node without the CNI plugin, for one.
//
//	err := validation.Add(pod, validation.Container{Image: "registry.example/sidecar-cni:0.1.0"})
//
// The container calls itself through lo, as the proxy's user, which every policy redirects to the
// proxy's inbound port. It listens there, and wants the call to arrive. Package
// injector/validate is what runs in it.
//
// Be aware: the pod is judged by what it says and by the defaults. On nodes that are configured
// with another inbound port the pod has to name it, by the annotation sidecar-cni.io/inboundPort;
// and on those that exclude its namespace it does not start, since it is not redirected there.
package validation

import (
	"fmt"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Name is that of the init container, and of Istio's, whose place it takes.
const Name = "istio-validation"

// Container is what all pods' init containers have in common.
type Container struct {
	Image      string // ours, with a tag or digest
	PullPolicy string // Always, IfNotPresent or Never
}

// Add puts the init container before all others of a pod that is injected, in place of one of that
// name. It changes the pod.
//
// A pod that the plugin leaves alone gets none, and loses one of ours that it has: one whose mode
// is NONE, or that has istio-init, which runs later than the container would. An error says what is
// wrong with what the pod asks for, or why no call of it could show that it is redirected, and what
// to do.
func Add(pod podtree.Object, c Container) error {
	policy, ours, err := policyOf(pod)
	if err != nil {
		return err
	}
	if !ours {
		if isOurs(find(pod)) {
			put(pod, nil)
		}
		return nil
	}
	calls, err := choose(policy, containerPorts(pod))
	if err != nil {
		return fmt.Errorf("init container %q: %w", Name, err)
	}
	put(pod, c.object(pod, policy, calls))
	return nil
}

// Has reports whether a pod has our init container, and not that of Istio's templates.
func Has(pod podtree.Object) bool { return isOurs(find(pod)) }

// Renew does what Add does, and keeps in a container of ours what others have put into it since:
// the API server the pull policy that it insists on, a limit range its resources, a mirror the
// image. Without them the pod would be refused, though we are asked again because of them.
func Renew(pod podtree.Object, c Container) error {
	own := find(pod)
	if err := Add(pod, c); err != nil {
		return err
	}
	if fresh := find(pod); isOurs(own) && fresh != nil {
		adopt(fresh, own)
	}
	return nil
}

// policyOf returns what a pod asks for, and whether the plugin redirects it.
func policyOf(pod podtree.Object) (policy redirect.Policy, ours bool, err error) {
	host, _ := podtree.Get(pod, "spec", "hostNetwork").(bool)
	if host || podtree.String(pod, "spec", "os", "name") == "windows" {
		return redirect.Policy{}, false, nil
	}
	facts, err := podtree.Facts(pod)
	if err != nil {
		return redirect.Policy{}, false, fmt.Errorf("read pod: %w", err)
	}
	cfg := redirect.Defaults() // but what a cluster excludes is not known here
	cfg.ExcludeNamespaces, cfg.Agent, cfg.RuntimeHandlers = nil, redirect.Agent{}, nil
	decision, err := redirect.Decide(facts, cfg)
	if err != nil {
		return redirect.Policy{}, false, fmt.Errorf("redirection: %w", err)
	}
	return decision.Policy, decision.Skip == "", nil
}

// find returns the pod's init container of our name; nil if there is none.
func find(pod podtree.Object) podtree.Object {
	inits := podtree.List(pod, "spec", "initContainers")
	if at := podtree.Named(inits, Name); at >= 0 {
		return inits[at].(podtree.Object)
	}
	return nil
}

// put makes a container the first of the init containers, in place of all that have its name. With
// nil there is none of that name afterwards.
func put(pod, container podtree.Object) {
	var inits []any
	if container != nil {
		inits = append(inits, container)
	}
	for _, one := range podtree.List(pod, "spec", "initContainers") {
		if object, _ := one.(podtree.Object); object["name"] != Name {
			inits = append(inits, one)
		}
	}
	if len(inits) == 0 {
		podtree.Delete(pod, "spec", "initContainers")
		return
	}
	podtree.Set(pod, slices.Clip(inits), "spec", "initContainers")
}

// containerPorts are those on which the pod says that it listens.
func containerPorts(pod podtree.Object) []uint16 {
	var all []uint16
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range podtree.List(pod, "spec", list) {
			object, _ := c.(podtree.Object)
			for _, p := range podtree.List(object, "ports") {
				object, _ := p.(podtree.Object)
				if port, ok := object["containerPort"].(int64); ok && port == int64(uint16(port)) {
					all = append(all, uint16(port))
				}
			}
		}
	}
	return all
}
