package cluster

import (
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
)

// The objects of the API, with what is looked at.

type meta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	UID       string            `json:"uid"`
	Labels    map[string]string `json:"labels"`
	Created   time.Time         `json:"creationTimestamp"`
	Deleted   string            `json:"deletionTimestamp"` // "" if it is to stay
}

type daemonSet struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Template struct {
			Spec podSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Desired int `json:"desiredNumberScheduled"`
		Current int `json:"currentNumberScheduled"`
		Ready   int `json:"numberReady"`
		Updated int `json:"updatedNumberScheduled"`
	} `json:"status"`
}

// image is that of its pods' container; "" if it has none.
func (d daemonSet) image() string { return d.Spec.Template.Spec.image() }

type podSpec struct {
	NodeName     string            `json:"nodeName"`
	NodeSelector map[string]string `json:"nodeSelector"`
	Tolerations  []toleration      `json:"tolerations"`
	Containers   []container       `json:"containers"`
	Volumes      onnode.Volumes    `json:"volumes"`
}

type container struct {
	Image string `json:"image"`
	Ports []struct {
		Name string `json:"name"`
		Port int    `json:"containerPort"`
	} `json:"ports"`
}

func (s podSpec) image() string {
	if len(s.Containers) == 0 {
		return ""
	}
	return s.Containers[0].Image
}

// toleration is a pod's, of a taint.
type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
	Effect   string `json:"effect"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// tolerated reports whether pods of these tolerations are let onto a node with the taint. Those of
// a DaemonSet tolerate by themselves what says that a node is in trouble.
func (t taint) tolerated(by []toleration) bool {
	own := []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
		"node.kubernetes.io/disk-pressure", "node.kubernetes.io/memory-pressure",
		"node.kubernetes.io/pid-pressure", "node.kubernetes.io/unschedulable"}
	if t.Effect == "PreferNoSchedule" || slices.Contains(own, t.Key) {
		return true
	}
	return slices.ContainsFunc(by, func(o toleration) bool {
		switch {
		case o.Effect != "" && o.Effect != t.Effect:
			return false
		case o.Key == "":
			return o.Operator == "Exists"
		}
		return o.Key == t.Key && (o.Operator == "Exists" || o.Value == t.Value)
	})
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func find(all []condition, kind string) (condition, bool) {
	for _, c := range all {
		if c.Type == kind {
			return c, true
		}
	}
	return condition{}, false
}

type pod struct {
	Metadata meta    `json:"metadata"`
	Spec     podSpec `json:"spec"`
	Status   struct {
		Phase      string            `json:"phase"`
		Reason     string            `json:"reason"`
		Message    string            `json:"message"`
		Conditions []condition       `json:"conditions"`
		Init       []containerStatus `json:"initContainerStatuses"`
		Containers []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type containerStatus struct {
	Restarts int `json:"restartCount"`
	State    struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
	} `json:"state"`
}

func (p pod) name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

func (p pod) ready() bool {
	c, found := find(p.Status.Conditions, "Ready")
	return found && c.Status == "True"
}

// claim is what a pod with the agents' labels says of itself.
func (p pod) claim() onnode.Claim {
	return onnode.Claim{Namespace: p.Metadata.Namespace, Volumes: p.Spec.Volumes, Ready: p.ready(),
		Leaving: p.Metadata.Deleted != "", Created: p.Metadata.Created}
}

// waits is for what the first of its containers waits that does; "" if none does.
func (p pod) waits() (reason, message string) {
	for _, s := range slices.Concat(p.Status.Init, p.Status.Containers) {
		if w := s.State.Waiting; w != nil {
			return w.Reason, w.Message
		}
	}
	return "", ""
}

type node struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Taints []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
		Info       struct {
			Kernel  string `json:"kernelVersion"`
			Runtime string `json:"containerRuntimeVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type event struct {
	Metadata meta `json:"metadata"`
	About    struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	} `json:"involvedObject"`
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Source  struct {
		Host string `json:"host"`
	} `json:"source"`
}
