package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// RedirectionLabel is the label of pods that run without redirection, where labels are wanted.
const RedirectionLabel = "sidecar-cni.io/redirection"

const (
	// containersMost is how much of a pod's containers the cache keeps. What redirect.Decide
	// reads of a usual pod takes some KB; the API server takes pods of 1.5 MB, and their authors
	// decide how many there are on a node.
	containersMost = 64 << 10
	// containerCost and variableCost are what one takes beside its texts.
	containerCost = 1 << 10
	variableCost  = 64
)

// What decides, by its keys.
var (
	decisiveAnnotations = append(redirect.Annotations(), corev1.MirrorPodAnnotationKey)
	decisiveLabels      = append(redirect.Labels(), RedirectionLabel)
	decisiveVariables   = redirect.Variables()
)

// strip returns what is kept of a pod: what is left by reduce, and no containers if those take
// too much.
func strip(pod *corev1.Pod) *corev1.Pod {
	out := reduce(pod)
	if costOf(out.Spec.InitContainers)+costOf(out.Spec.Containers) > containersMost {
		out.Spec.InitContainers, out.Spec.Containers = nil, nil
	}
	return out
}

// Complete reports whether a pod from List has all that decides about it. Every pod has a
// container: one without is too large to be kept.
func Complete(pod *corev1.Pod) bool { return len(pod.Spec.Containers) > 0 }

// reduce returns a pod with what decides about its traffic (docs/agent-protocol.md lists it) and
// what shows whether it can still be mended. A pod of the API server is 10 to 20 KB, what is left
// of it less than 1.
func reduce(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			Labels:            only(pod.Labels, decisiveLabels),
			Annotations:       only(pod.Annotations, decisiveAnnotations),
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName:         pod.Spec.NodeName,
			HostNetwork:      pod.Spec.HostNetwork,
			RestartPolicy:    pod.Spec.RestartPolicy,
			RuntimeClassName: pod.Spec.RuntimeClassName,
			InitContainers:   reduceContainers(pod.Spec.InitContainers),
			Containers:       reduceContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{
			Phase:  pod.Status.Phase,
			PodIP:  pod.Status.PodIP,
			PodIPs: pod.Status.PodIPs,
		},
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		out.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: sc.RunAsUser,
			RunAsGroup: sc.RunAsGroup}
	}
	if injected := (redirect.Pod{Annotations: pod.Annotations}).Injected(); !injected {
		out.Spec.InitContainers = nameable(out.Spec.InitContainers, 0)
		out.Spec.Containers = nameable(out.Spec.Containers, 1)
	}
	return out
}

// nameable leaves out of a pod that was not injected the containers whose names mean nothing, but
// for the first ones: such a pod is skipped whoever they run as, and it must have a container to
// be told from a pod that is not known.
func nameable(containers []corev1.Container, first int) []corev1.Container {
	var out []corev1.Container
	for i, c := range containers {
		if i < first || c.Name == redirect.ProxyContainer || c.Name == redirect.InitContainer {
			out = append(out, c)
		}
	}
	return out
}

func only(all map[string]string, keys []string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

func reduceContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		if sc := c.SecurityContext; sc != nil {
			out[i].SecurityContext = &corev1.SecurityContext{RunAsUser: sc.RunAsUser,
				RunAsGroup: sc.RunAsGroup}
		}
		if c.Name == redirect.ProxyContainer {
			out[i].Args = slices.Clone(c.Args[:min(len(c.Args), redirect.DecisiveArgs)])
			out[i].Env = reduceEnv(c.Env)
		}
	}
	return out
}

// reduceEnv keeps of several variables with one name the last, which counts, and forgets where
// values come from: that they come from somewhere is what counts.
func reduceEnv(env []corev1.EnvVar) []corev1.EnvVar {
	var somewhere corev1.EnvVarSource
	var out []corev1.EnvVar
	for _, key := range decisiveVariables {
		for _, e := range slices.Backward(env) {
			if e.Name != key {
				continue
			}
			kept := corev1.EnvVar{Name: e.Name, Value: e.Value}
			if e.ValueFrom != nil {
				kept.ValueFrom = &somewhere
			}
			out = append(out, kept)
			break
		}
	}
	return out
}

// costOf is how much memory containers take that were reduced.
func costOf(containers []corev1.Container) int {
	cost := 0
	for i := range containers {
		c := &containers[i]
		cost += containerCost + len(c.Name)
		for _, arg := range c.Args {
			cost += len(arg)
		}
		for _, e := range c.Env {
			cost += variableCost + len(e.Value)
		}
	}
	return cost
}
