package agent

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strip returns a pod with what decides about its traffic (docs/agent-protocol.md lists it) and what tells whether it
// can still be mended. A pod of the API server is 10 to 20 KB, what is left of it 2 or 3.
func strip(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			Labels:            pod.Labels,
			Annotations:       pod.Annotations,
			OwnerReferences:   pod.OwnerReferences,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName:      pod.Spec.NodeName,
			HostNetwork:   pod.Spec.HostNetwork,
			RestartPolicy: pod.Spec.RestartPolicy,

			RuntimeClassName: pod.Spec.RuntimeClassName,
			InitContainers:   stripContainers(pod.Spec.InitContainers),
			Containers:       stripContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{
			Phase:  pod.Status.Phase,
			PodIP:  pod.Status.PodIP,
			PodIPs: pod.Status.PodIPs,
		},
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		out.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: sc.RunAsUser, RunAsGroup: sc.RunAsGroup}
	}
	return out
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = corev1.Container{Name: c.Name, Args: c.Args, Env: stripEnv(c.Env), RestartPolicy: c.RestartPolicy}
		if sc := c.SecurityContext; sc != nil {
			out[i].SecurityContext = &corev1.SecurityContext{RunAsUser: sc.RunAsUser, RunAsGroup: sc.RunAsGroup}
		}
	}
	return out
}

// stripEnv forgets where values come from: that they come from somewhere is what counts.
func stripEnv(env []corev1.EnvVar) []corev1.EnvVar {
	if len(env) == 0 {
		return nil
	}
	var somewhere corev1.EnvVarSource
	out := make([]corev1.EnvVar, len(env))
	for i, e := range env {
		out[i] = corev1.EnvVar{Name: e.Name, Value: e.Value}
		if e.ValueFrom != nil {
			out[i].ValueFrom = &somewhere
		}
	}
	return out
}
