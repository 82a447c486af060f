package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// checkSize reports a pod that is too large for the API.
func checkSize(pod podtree.Object, what string) error {
	if podtree.MaxSize(pod) <= maxSize {
		return nil
	}
	data, err := json.Marshal(pod)
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	if len(data) > maxSize {
		return fmt.Errorf("%s has %d bytes, want at most %d", what, len(data), maxSize)
	}
	return nil
}

// typed reads the pod as the API's type. Fields that it does not know are passed over.
func typed(pod podtree.Object) (*corev1.Pod, error) {
	typed := &corev1.Pod{}
	return typed, plain(podtree.Into(pod, typed))
}

// checkTypes reports fields that have not the type that they have in the API.
func checkTypes(pod podtree.Object) error {
	c := converter{fields: declared()}
	if c.convert(pod, reflect.TypeFor[corev1.Pod]()); !c.doubt {
		return nil
	}
	_, err := typed(pod)
	return err
}

// check reports a result that the API would refuse, or that the CNI plugin would not redirect.
func (in *injection) check() error {
	if err := checkSize(in.pod, "the pod with its sidecar"); err != nil {
		return err
	}
	if err := checkTypes(in.pod); err != nil {
		return fmt.Errorf("%s yields no pod: %w", in.templates(), err)
	}
	if err := in.checkContainers(podtree.Map(in.pod, "spec")); err != nil {
		return err
	}
	facts, err := podtree.Facts(in.pod)
	if err != nil {
		return fmt.Errorf("%s yields no pod: %w", in.templates(), plain(err))
	}
	return in.checkRedirected(facts)
}

// checkContainers looks for what no template can mean: a name twice, and a container of its own
// without an image.
func (in *injection) checkContainers(spec podtree.Object) error {
	var mistakes []error
	seen := map[string]bool{}
	twice := func(kind, name string) {
		if seen[kind+name] {
			mistakes = append(mistakes, fmt.Errorf("%s: the pod would have two %ss %q; rename one",
				in.templates(), kind, name))
		}
		seen[kind+name] = true
	}
	for _, item := range slices.Concat(podtree.List(spec, initContainers),
		podtree.List(spec, containers)) {
		c, _ := item.(podtree.Object)
		name, image := podtree.String(c, "name"), podtree.String(c, "image")
		twice("container", name)
		ours := slices.Contains(in.given.init, name) || slices.Contains(in.given.ordinary, name)
		if ours && (image == "" || image == autoImage) {
			mistakes = append(mistakes, fmt.Errorf("%s: container %q has no image; set it there, "+
				"or by the values it is made of", in.templates(), name))
		}
	}
	for _, item := range podtree.List(spec, "volumes") {
		volume, _ := item.(podtree.Object)
		twice("volume", podtree.String(volume, "name"))
	}
	return errors.Join(mistakes...)
}

// checkRedirected asks the code of the CNI plugin.
func (in *injection) checkRedirected(facts redirect.Pod) error {
	decision, err := redirect.Decide(facts, redirection())
	if err != nil {
		return fmt.Errorf("redirection: %w", err)
	}
	if decision.Skip != "" && decision.Skip != redirect.InterceptionNone {
		return fmt.Errorf("%s: the pod would not be redirected: %s", in.templates(), decision.Skip)
	}
	for _, warning := range slices.Concat(decision.Warnings, decision.Notices) {
		if warning != redirect.UnknownNameservers { // known on the node
			in.warn("%s", warning)
		}
	}
	in.warnOfRights()
	return nil
}

// warnOfRights names the one right that TPROXY takes and that Pod Security refuses.
func (in *injection) warnOfRights() {
	add := podtree.List(containerOf(in.pod, proxyName), "securityContext", "capabilities", "add")
	if slices.Contains(add, any("NET_ADMIN")) {
		in.warn("container %q has the capability NET_ADMIN, which Pod Security baseline and "+
			"restricted refuse", proxyName)
	}
}

// templates names those that the pod got, for messages.
func (in *injection) templates() string {
	quoted := make([]string, len(in.names))
	for i, name := range in.names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	if len(quoted) == 1 {
		return "template " + quoted[0]
	}
	return "templates " + strings.Join(quoted, ", ")
}
