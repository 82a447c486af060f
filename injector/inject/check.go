package inject

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// written is a pod in JSON, from which all types read it.
type written []byte

// write returns a pod in JSON; an error if that is too large for the API.
func write(pod podtree.Object, what string) (written, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", what, err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%s has %d bytes, want at most %d", what, len(data), maxSize)
	}
	return data, nil
}

// typed reads the pod as the API's type. Fields that it does not know are passed over.
func (w written) typed() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, plain(kjson.UnmarshalCaseSensitivePreserveInts(w, pod))
}

// facts reads what decides about redirection.
func (w written) facts() (redirect.Pod, error) {
	pod, err := kubepod.Parse(w)
	if err != nil {
		return redirect.Pod{}, plain(err)
	}
	facts := pod.Facts()
	facts.Name = cmp.Or(facts.Name, "pod") // that of a workload's template comes later
	facts.Namespace = cmp.Or(facts.Namespace, "default")
	return facts, nil
}

// check reports a result that the API would refuse, or that the CNI plugin would not redirect.
func (in *injection) check() error {
	data, err := write(in.pod, "the pod with its sidecar")
	if err != nil {
		return err
	}
	pod, err := data.typed()
	if err != nil {
		return fmt.Errorf("%s yields no pod: %w", in.templates(), err)
	}
	if err := in.checkContainers(&pod.Spec); err != nil {
		return err
	}
	facts, err := data.facts()
	if err != nil {
		return fmt.Errorf("%s yields no pod: %w", in.templates(), err)
	}
	return in.checkRedirected(facts)
}

// checkContainers looks for what no template can mean: a name twice, and a container of its own
// without an image.
func (in *injection) checkContainers(spec *corev1.PodSpec) error {
	var mistakes []error
	seen := map[string]bool{}
	twice := func(kind, name string) {
		if seen[kind+name] {
			mistakes = append(mistakes, fmt.Errorf("%s: the pod would have two %ss %q; rename one",
				in.templates(), kind, name))
		}
		seen[kind+name] = true
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		twice("container", c.Name)
		ours := slices.Contains(in.given.init, c.Name) ||
			slices.Contains(in.given.ordinary, c.Name)
		if ours && (c.Image == "" || c.Image == autoImage) {
			mistakes = append(mistakes, fmt.Errorf("%s: container %q has no image; set it there, "+
				"or by the values it is made of", in.templates(), c.Name))
		}
	}
	for _, v := range spec.Volumes {
		twice("volume", v.Name)
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
