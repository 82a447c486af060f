package agent

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// Describe returns what decides of a pod: what the protocol wants, and redirect.Decide. corev1.Pod
// in JSON would come to the same, and make encoding/json keep a description of each of its hundreds
// of types.
func Describe(pod *corev1.Pod) *kubepod.Pod {
	p := &kubepod.Pod{
		Metadata: kubepod.Metadata{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Labels: pod.Labels,
			Annotations: pod.Annotations,
		},
		Spec: kubepod.Spec{InitContainers: describe(pod.Spec.InitContainers),
			Containers: describe(pod.Spec.Containers)},
	}
	if class := pod.Spec.RuntimeClassName; class != nil {
		p.Spec.RuntimeClassName = *class
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		p.Spec.SecurityContext = kubepod.User{RunAsUser: sc.RunAsUser, RunAsGroup: sc.RunAsGroup}
	}
	return p
}

func describe(containers []corev1.Container) []kubepod.Container {
	var all []kubepod.Container
	for i := range containers {
		c := &containers[i]
		one := kubepod.Container{Name: c.Name, Args: c.Args}
		for _, e := range c.Env {
			variable := kubepod.Variable{Name: e.Name, Value: e.Value}
			if e.ValueFrom != nil {
				variable.ValueFrom = &struct{}{}
			}
			one.Env = append(one.Env, variable)
		}
		if c.RestartPolicy != nil {
			one.RestartPolicy = string(*c.RestartPolicy)
		}
		if sc := c.SecurityContext; sc != nil {
			one.SecurityContext = kubepod.User{RunAsUser: sc.RunAsUser, RunAsGroup: sc.RunAsGroup}
		}
		all = append(all, one)
	}
	return all
}
