package nriserver

import (
	"encoding/json"
	"slices"
)

// Pod is a pod as the runtime tells plugins of it.
type Pod struct {
	ID, Name, Namespace, UID string
	Annotations, Labels      map[string]string
	RuntimeHandler           string
	NetnsPath                string // "" is the host's
	PID                      uint32
	IPs                      []string
}

// Untold is the NetnsPath of a pod of which the runtime tells no namespaces.
const Untold = "untold"

// State is that of a container.
type State int

// States, by NRI's numbers.
const (
	Created State = 1
	Paused  State = 2
	Running State = 3
	Stopped State = 4
)

// Container is a container as the runtime tells plugins of it.
type Container struct {
	ID, PodID, Name string
	State           State
	Env             []string
}

type namespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

type linux struct {
	Namespaces []namespace `json:"namespaces,omitempty"`
}

// MarshalJSON writes NRI's PodSandbox.
func (p Pod) MarshalJSON() ([]byte, error) {
	spaces := []namespace{{Type: "pid"}}
	switch p.NetnsPath {
	case "":
	case Untold:
		spaces = nil
	default:
		spaces = append(spaces, namespace{Type: "network", Path: p.NetnsPath})
	}
	return json.Marshal(struct {
		ID             string            `json:"id"`
		Name           string            `json:"name"`
		UID            string            `json:"uid"`
		Namespace      string            `json:"namespace"`
		Labels         map[string]string `json:"labels,omitempty"`
		Annotations    map[string]string `json:"annotations,omitempty"`
		RuntimeHandler string            `json:"runtime_handler,omitempty"`
		Linux          linux             `json:"linux"`
		PID            uint32            `json:"pid,omitempty"`
		IPs            []string          `json:"ips,omitempty"`
	}{p.ID, p.Name, p.UID, p.Namespace, p.Labels, p.Annotations, p.RuntimeHandler,
		linux{spaces}, p.PID, p.IPs})
}

// MarshalJSON writes NRI's Container.
func (c Container) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID    string   `json:"id"`
		PodID string   `json:"pod_sandbox_id"`
		Name  string   `json:"name"`
		State State    `json:"state"`
		Env   []string `json:"env,omitempty"`
	}{c.ID, c.PodID, c.Name, c.State, c.Env})
}

// world is what runs.
type world struct {
	pods       []Pod
	containers []Container
}

func (w *world) forget(pod string) {
	w.pods = slices.DeleteFunc(w.pods, func(p Pod) bool { return p.ID == pod })
	w.containers = slices.DeleteFunc(w.containers, func(c Container) bool { return c.PodID == pod })
}
