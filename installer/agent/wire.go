package agent

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A wirePod is a stripped pod as the protocol wants it. corev1.Pod in JSON would be the same with empty objects in
// between, and make encoding/json keep a description of each of its hundreds of types.
type wirePod struct {
	Metadata wireMeta `json:"metadata"`
	Spec     wireSpec `json:"spec"`
}

type wireMeta struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         types.UID         `json:"uid"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type wireSpec struct {
	InitContainers  []wireContainer `json:"initContainers,omitempty"`
	Containers      []wireContainer `json:"containers,omitempty"`
	SecurityContext *wireUser       `json:"securityContext,omitempty"`
}

type wireContainer struct {
	Name            string                         `json:"name"`
	Args            []string                       `json:"args,omitempty"`
	Env             []wireEnv                      `json:"env,omitempty"`
	RestartPolicy   *corev1.ContainerRestartPolicy `json:"restartPolicy,omitempty"`
	SecurityContext *wireUser                      `json:"securityContext,omitempty"`
}

type wireEnv struct {
	Name      string    `json:"name"`
	Value     string    `json:"value,omitempty"`
	ValueFrom *struct{} `json:"valueFrom,omitempty"`
}

type wireUser struct {
	RunAsUser  *int64 `json:"runAsUser,omitempty"`
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
}

func encodePod(pod *corev1.Pod) ([]byte, error) {
	wire := wirePod{
		Metadata: wireMeta{pod.Namespace, pod.Name, pod.UID, pod.Labels, pod.Annotations},
		Spec: wireSpec{
			InitContainers: wireContainers(pod.Spec.InitContainers),
			Containers:     wireContainers(pod.Spec.Containers),
		},
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		wire.Spec.SecurityContext = &wireUser{sc.RunAsUser, sc.RunAsGroup}
	}
	return json.Marshal(wire)
}

func wireContainers(containers []corev1.Container) []wireContainer {
	out := make([]wireContainer, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		wire := wireContainer{Name: c.Name, Args: c.Args, RestartPolicy: c.RestartPolicy}
		for _, e := range c.Env {
			env := wireEnv{Name: e.Name, Value: e.Value}
			if e.ValueFrom != nil {
				env.ValueFrom = &struct{}{}
			}
			wire.Env = append(wire.Env, env)
		}
		if sc := c.SecurityContext; sc != nil {
			wire.SecurityContext = &wireUser{sc.RunAsUser, sc.RunAsGroup}
		}
		out = append(out, wire)
	}
	return out
}
