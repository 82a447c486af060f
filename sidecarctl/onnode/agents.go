package onnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// Agents are those of a cluster.
type Agents struct {
	Client    *rest.RESTClient // of package target
	Config    *rest.Config     // of the same cluster
	Namespace string           // of the agents; "" is to be found out
}

// Agent is the pod of one agent.
type Agent struct {
	Namespace, Name string   // of the pod
	Node            string   // that it runs on
	Args            []string // of its container

	config *rest.Config
	client *rest.RESTClient
}

// agentPod is as much of a pod as matters.
type agentPod struct {
	Metadata struct {
		Namespace         string    `json:"namespace"`
		Name              string    `json:"name"`
		CreationTimestamp time.Time `json:"creationTimestamp"`
		DeletionTimestamp string    `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string  `json:"nodeName"`
		Volumes    Volumes `json:"volumes"`
		Containers []struct {
			Name string   `json:"name"`
			Args []string `json:"args"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// On returns the agent of a node; of any node if none is named.
func (a Agents) On(ctx context.Context, node string) (Agent, error) {
	agents, err := a.list(ctx, node)
	if err != nil {
		return Agent{}, err
	}
	if len(agents) == 0 && node == "" {
		return Agent{}, errors.New("no agent of sidecar-cni runs in the cluster: is it " +
			"installed? See kubectl get pods -A -l " + Labels)
	}
	if len(agents) == 0 {
		return Agent{}, fmt.Errorf("no agent of sidecar-cni runs on node %s: see kubectl get pods "+
			"-A -o wide -l %s", node, Labels)
	}
	return agents[0], nil
}

// Each returns one agent of each node that has any.
func (a Agents) Each(ctx context.Context) ([]Agent, error) {
	agents, err := a.list(ctx, "")
	slices.SortStableFunc(agents, func(a, b Agent) int { return cmp.Compare(a.Node, b.Node) })
	return slices.CompactFunc(agents, func(a, b Agent) bool { return a.Node == b.Node }), err
}

// list returns the agents that run, those first that are to be asked before others.
func (a Agents) list(ctx context.Context, node string) ([]Agent, error) {
	labelled := api.List{Path: api.Path("/api/v1", a.Namespace, "pods"), Labels: Labels}
	if node != "" {
		labelled.Fields = "spec.nodeName=" + node
	}
	var items []agentPod
	for p, err := range api.Each[agentPod](ctx, a.Client, labelled) {
		if err != nil {
			return nil, a.explain(err)
		}
		if p.Status.Phase == "Running" && p.Metadata.DeletionTimestamp == "" {
			items = append(items, p)
		}
	}
	items, err := Genuine(items, agentPod.claim)
	if err != nil {
		return nil, fmt.Errorf("find agents: %w", err)
	}
	agents := make([]Agent, len(items))
	for i, p := range items {
		agents[i] = Agent{p.Metadata.Namespace, p.Metadata.Name, p.Spec.NodeName, p.args(),
			a.Config, a.Client}
	}
	return agents, nil
}

func (a Agents) explain(err error) error {
	switch {
	case apierrors.IsForbidden(err) && a.Namespace == "":
		return errors.New("find agents: listing the pods of all namespaces is forbidden: name " +
			"theirs by --agent-namespace, or have a role bound to you with the verb list for pods")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("find agents: have a role bound to you with the verb list for pods in "+
			"namespace %q", a.Namespace)
	}
	why := api.WhyNot(err, a.Client.Get().URL(), "list for pods")
	return &foreign.Error{Text: "find agents: " + why.String(), Cause: err}
}

func (p agentPod) claim() Claim {
	c := Claim{Namespace: p.Metadata.Namespace, Created: p.Metadata.CreationTimestamp,
		Volumes: p.Spec.Volumes}
	for _, one := range p.Status.Conditions {
		c.Ready = c.Ready || one.Type == "Ready" && one.Status == "True"
	}
	return c
}

func (p agentPod) args() []string {
	for _, c := range p.Spec.Containers {
		if c.Name == container {
			return c.Args
		}
	}
	return nil
}

// Told returns the value that the agent was given for a flag; "" if it was given none.
func (a Agent) Told(flag string) string {
	for _, arg := range a.Args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			return value
		}
	}
	return ""
}
