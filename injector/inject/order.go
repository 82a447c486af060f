package inject

import (
	"slices"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// order puts the containers of the mesh where they belong. istio-init has its place too, though it
// leaves: which init containers ran before it decides what becomes of them.
//
// A proxy that is a native sidecar is first among the init containers, behind what sets up or
// checks the rules: the pod's own init containers find it running. Otherwise istio-init was the
// last of them, so that the others had the network to themselves, and the proxy is the last of the
// ordinary containers, since kubectl takes the first; or the first, where the application is held
// until the proxy has started.
func (in *injection) order() {
	spec := podtree.Map(in.pod, "spec")
	if in.native() {
		moveFirst(spec, initContainers, coreDumpName)
		moveFirst(spec, initContainers, proxyName)
		moveFirst(spec, initContainers, validationName)
		moveFirst(spec, initContainers, initName)
	} else {
		moveFirst(spec, initContainers, validationName)
		moveLast(spec, initContainers, initName)
		moveLast(spec, initContainers, coreDumpName)
	}
	if in.held() {
		moveFirst(spec, containers, proxyName)
	} else {
		moveLast(spec, containers, proxyName)
	}
}

// native reports whether the proxy is a native sidecar.
func (in *injection) native() bool {
	return podtree.Named(podtree.List(in.pod, "spec", initContainers), proxyName) >= 0
}

// held reports whether the application starts after the proxy.
func (in *injection) held() bool {
	return in.proxy.GetHoldApplicationUntilProxyStarts().GetValue() ||
		in.enabled("global", "proxy", "holdApplicationUntilProxyStarts")
}

func moveFirst(spec podtree.Object, list, name string) {
	if rest, item := without(spec, list, name); item != nil {
		spec[list] = slices.Concat([]any{item}, rest)
	}
}

func moveLast(spec podtree.Object, list, name string) {
	if rest, item := without(spec, list, name); item != nil {
		spec[list] = append(rest, item)
	}
}

// without returns a copy of a list without the object of a name, and the object; nil if there is
// none.
func without(spec podtree.Object, list, name string) (rest []any, item any) {
	all := podtree.List(spec, list)
	at := podtree.Named(all, name)
	if at < 0 {
		return all, nil
	}
	return slices.Delete(slices.Clone(all), at, at+1), all[at]
}

// containerOf returns a container of a pod, be it an ordinary one or an init container; nil if
// there is none.
func containerOf(pod podtree.Object, name string) podtree.Object {
	for _, list := range []string{containers, initContainers} {
		all := podtree.List(pod, "spec", list)
		if at := podtree.Named(all, name); at >= 0 {
			return all[at].(podtree.Object)
		}
	}
	return nil
}
