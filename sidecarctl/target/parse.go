package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// source is where a pod comes from.
type source struct {
	owner map[string]any // the object: the pod, or what has its template
	kind  string
	body  map[string]any // has the pod's metadata and spec; the owner itself if that is a pod
	path  string         // of body within owner; "" if that is a pod
}

// fields are those that kubepod does not have.
type fields struct {
	Metadata struct {
		GenerateName string `json:"generateName"`
		Annotations  struct {
			Mirror string `json:"kubernetes.io/config.mirror"` // the uid, of a static pod
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool   `json:"hostNetwork"`
		NodeName    string `json:"nodeName"`
		DNSPolicy   string `json:"dnsPolicy"`
		DNSConfig   struct {
			Nameservers []string `json:"nameservers"`
		} `json:"dnsConfig"`
		InitContainers []ports `json:"initContainers"`
		Containers     []ports `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		PodIP  string `json:"podIP"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
		InitContainerStatuses []status `json:"initContainerStatuses"`
		ContainerStatuses     []status `json:"containerStatuses"`
	} `json:"status"`
}

// status is a container's.
type status struct {
	Name        string `json:"name"`
	ContainerID string `json:"containerID"`
}

// ports are those of a container.
type ports struct {
	Ports []struct {
		Name          string `json:"name"`
		ContainerPort uint16 `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
}

// parsed is a pod in both readings.
type parsed struct {
	pod  *kubepod.Pod
	more fields
}

// describe names the object in a message about it.
func (s source) describe() string {
	if name, _ := dig(s.owner, "metadata")["name"].(string); name != "" {
		return foreign.Name(s.kind + " " + name)
	}
	return foreign.Name(s.kind)
}

func (s source) pod(o Options) (Pod, error) {
	p, err := parse(s.body, s.path)
	if err != nil {
		return Pod{}, err
	}
	owner := p
	if s.path != "" {
		// Of the owner the metadata alone is read: its status is not a pod's.
		owner, err = parse(map[string]any{"metadata": s.owner["metadata"]}, "")
		if err != nil {
			return Pod{}, err
		}
	}
	if err := p.check(s.path); err != nil {
		return Pod{}, err
	}
	name := firstOf(owner.pod.Metadata.Name, owner.more.Metadata.GenerateName,
		p.pod.Metadata.Name)
	if name == "" {
		return Pod{}, errors.New("metadata.name is missing; add one")
	}
	meta := &p.pod.Metadata
	meta.Namespace = firstOf(owner.pod.Metadata.Namespace, meta.Namespace, o.namespace())
	meta.Name = firstOf(meta.Name, name)
	pod, err := p.build(s.path)
	if err != nil {
		return Pod{}, err
	}
	pod.Kind, pod.Name = foreign.Name(s.kind), foreign.Name(meta.Namespace+"/"+name)
	if s.path != "" {
		pod.Name += " (" + pod.Kind + ")"
		pod.UID, pod.NodeUID, pod.Phase, pod.Node, pod.IPs = "", "", "", "", nil
		pod.Owner, pod.Outside = pod.Kind+" "+foreign.Name(name), owner.pod.Metadata.Annotations
	}
	return pod, nil
}

// handlerKey is what an object has beside a pod's fields that was sent to its node.
const handlerKey = "runtimeHandler"

// parse reads a pod in both ways. Only what a pod has in the API is passed on, and its handler.
func parse(body map[string]any, path string) (parsed, error) {
	known := map[string]any{}
	for _, key := range []string{"metadata", "spec", "status", handlerKey} {
		if value, ok := body[key]; ok {
			known[key] = value
		}
	}
	data, err := json.Marshal(known)
	if err != nil {
		return parsed{}, err
	}
	var p parsed
	if p.pod, err = kubepod.Parse(data); err == nil {
		err = json.Unmarshal(data, &p.more)
	}
	return p, wrongType(err, path)
}

// wrongType says in a manifest's words what a field is and what it has to be.
func wrongType(err error, path string) error {
	var mistake *json.UnmarshalTypeError
	if !errors.As(err, &mistake) {
		return err
	}
	found := map[string]string{"array": "a list", "object": "a mapping", "bool": "true or false",
		"string": "a string", "number": "a number"}[mistake.Value]
	if found == "" {
		found = "the " + foreign.Cut(mistake.Value) // number 70000
	}
	want := "a mapping"
	switch mistake.Type.Kind() {
	case reflect.String:
		want = "a string: put it into quotes"
	case reflect.Int64:
		want = "an integer of 64 bits"
	case reflect.Uint16:
		want = "a port from 1 to 65535"
	case reflect.Slice:
		want = "a list"
	case reflect.Bool:
		want = "true or false, without quotes"
	default:
	}
	return fmt.Errorf("in %s: found %s, want %s", path+mistake.Field, found, want)
}

// check refuses what the API would not take and what follows could not name.
func (p parsed) check(path string) error {
	if len(p.pod.Spec.Containers) == 0 {
		return fmt.Errorf("%sspec.containers is missing or empty: a pod has at least one", path)
	}
	if err := named(p.pod.Spec.InitContainers, path+"spec.initContainers"); err != nil {
		return err
	}
	return named(p.pod.Spec.Containers, path+"spec.containers")
}

func named(containers []kubepod.Container, field string) error {
	for i, c := range containers {
		if c.Name == "" {
			return fmt.Errorf("%s[%d] has no name", field, i)
		}
	}
	return nil
}

func firstOf(words ...string) string {
	for _, word := range words {
		if word != "" {
			return word
		}
	}
	return ""
}

func addresses(words []string, field string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, word := range words {
		address, err := netip.ParseAddr(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not an IP address", field,
				foreign.Cut(word))
		}
		all = append(all, address.Unmap())
	}
	return all, nil
}
