// Package kubepod reads the facts of a pod that decide about its traffic from the form in which the
// Kubernetes API writes pods. It is the only place of the core that knows that form.
//
//	pod, err := kubepod.Parse(data)
//	decision, err := redirect.Decide(pod.Facts(), redirect.Defaults())
//
// Be aware: it knows the fields that decide and skips the others. The types of k8s.io/api would
// read all of them, and take a process that reads one pod 3 ms to get ready; docs/agent-protocol.md
// lists the same fields.
package kubepod

import (
	"encoding/json"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Pod is the part of a Kubernetes Pod that decides.
type Pod struct {
	// As in the API.
	Metadata Metadata `json:"metadata"`
	Spec     Spec     `json:"spec"`

	// RuntimeHandler is the handler of the pod's runtime class. The node agent adds it; no object
	// of the API has it.
	RuntimeHandler string `json:"runtimeHandler,omitempty"`
}

// Metadata says which pod it is, and what was said about it.
type Metadata struct {
	// As in the API; what the object does not have is empty or nil.
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is what runs in it.
type Spec struct {
	// As in the API, in its order.
	InitContainers []Container `json:"initContainers,omitempty"`
	Containers     []Container `json:"containers,omitempty"`

	SecurityContext  User   `json:"securityContext,omitzero"`   // for containers that do not say
	RuntimeClassName string `json:"runtimeClassName,omitempty"` // "": the node's usual runtime
}

// Container is one of the pod's.
type Container struct {
	// As in the API. Args and Env decide in the proxy's container only.
	Name string     `json:"name"`
	Args []string   `json:"args,omitempty"`
	Env  []Variable `json:"env,omitempty"`

	RestartPolicy   string `json:"restartPolicy,omitempty"`  // Always makes an init container stay
	SecurityContext User   `json:"securityContext,omitzero"` // goes before the pod's
}

// Variable is a variable of the environment.
type Variable struct {
	Name      string    `json:"name"`                // of several with one name the last counts
	Value     string    `json:"value,omitempty"`     // "" with ValueFrom
	ValueFrom *struct{} `json:"valueFrom,omitempty"` // whatever the source is
}

// User is who something runs as; nil is not said.
type User struct {
	// As they are written; they may be no ids at all, as -1.
	RunAsUser  *int64 `json:"runAsUser,omitempty"`
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
}

// restartAlways is the restart policy of an init container that stays: a native sidecar.
const restartAlways = "Always"

// mirrored is the annotation of the API server's image of a static pod.
const mirrored = "kubernetes.io/config.mirror"

// Parse reads a pod in JSON.
func Parse(data []byte) (*Pod, error) {
	pod := &Pod{}
	return pod, json.Unmarshal(data, pod)
}

// Mirror reports whether it stands for a static pod, whose uid is another one.
func (p *Pod) Mirror() bool { return p.Metadata.Annotations[mirrored] != "" }

// Facts returns what decides. The nameservers are not among it: only the runtime knows what it will
// write.
func (p *Pod) Facts() redirect.Pod {
	spec := &redirect.Spec{
		Labels: p.Metadata.Labels, RunAsUser: p.Spec.SecurityContext.RunAsUser,
		RunAsGroup:   p.Spec.SecurityContext.RunAsGroup,
		RuntimeClass: p.Spec.RuntimeClassName, RuntimeHandler: p.RuntimeHandler,
	}
	for _, c := range p.Spec.InitContainers {
		facts := c.facts()
		facts.Init = true
		spec.Containers = append(spec.Containers, facts)
	}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, c.facts())
	}
	annotations := p.Metadata.Annotations
	if annotations == nil {
		annotations = map[string]string{} // known, and empty
	}
	return redirect.Pod{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, Static: p.Mirror(),
		Annotations: annotations, Spec: spec,
	}
}

func (c Container) facts() redirect.Container {
	facts := redirect.Container{
		Name:       c.Name,
		Stays:      c.RestartPolicy == restartAlways,
		Args:       c.Args,
		Env:        map[string]string{},
		RunAsUser:  c.SecurityContext.RunAsUser,
		RunAsGroup: c.SecurityContext.RunAsGroup,
	}
	if c.Name != redirect.ProxyContainer { // whose variables decide
		return facts
	}
	elsewhere := map[string]bool{}
	for _, e := range c.Env { // of several with one name the last counts
		delete(facts.Env, e.Name)
		if elsewhere[e.Name] = e.ValueFrom != nil; e.ValueFrom == nil {
			facts.Env[e.Name] = e.Value
		}
	}
	for name, is := range elsewhere {
		if is {
			facts.EnvFrom = append(facts.EnvFrom, name)
		}
	}
	slices.Sort(facts.EnvFrom)
	return facts
}
