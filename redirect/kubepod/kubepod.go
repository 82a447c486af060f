// Package kubepod reads the facts of a pod that decide about its traffic from the Kubernetes API's form of it. It is the
// only place of the core that knows Kubernetes' types.
//
//	decision, err := redirect.Decide(kubepod.From(pod), redirect.Defaults())
package kubepod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// From returns the facts of a pod. The nameservers are not among them: only the runtime knows what it will write.
func From(pod *corev1.Pod) redirect.Pod {
	spec := &redirect.Spec{Labels: pod.Labels}
	if sc := pod.Spec.SecurityContext; sc != nil {
		spec.RunAsUser, spec.RunAsGroup = sc.RunAsUser, sc.RunAsGroup
	}
	for i := range pod.Spec.InitContainers {
		c := container(&pod.Spec.InitContainers[i])
		c.Init = true
		spec.Containers = append(spec.Containers, c)
	}
	for i := range pod.Spec.Containers {
		spec.Containers = append(spec.Containers, container(&pod.Spec.Containers[i]))
	}
	annotations := pod.Annotations
	if annotations == nil {
		annotations = map[string]string{} // told, and empty
	}
	return redirect.Pod{Namespace: pod.Namespace, Name: pod.Name, Annotations: annotations, Spec: spec}
}

func container(c *corev1.Container) redirect.Container {
	out := redirect.Container{
		Name:  c.Name,
		Stays: c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways,
		Args:  c.Args,
		Env:   map[string]string{},
	}
	for _, e := range c.Env { // of several with one name the last counts
		out.EnvFrom = slices.DeleteFunc(out.EnvFrom, func(name string) bool { return name == e.Name })
		delete(out.Env, e.Name)
		if e.ValueFrom != nil {
			out.EnvFrom = append(out.EnvFrom, e.Name)
			continue
		}
		out.Env[e.Name] = e.Value
	}
	if sc := c.SecurityContext; sc != nil {
		out.RunAsUser, out.RunAsGroup = sc.RunAsUser, sc.RunAsGroup
	}
	return out
}
