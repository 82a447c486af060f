// Package nodestatus is what the agent says about its node: that pods may start on it, by taking
// away a taint, and whether they start redirected, by a condition.
//
//	node := nodestatus.New(client, "node-1")
//	removed, err := node.RemoveTaint(ctx)
//	written, err := node.Report(ctx, nodestatus.Condition{Ready: true, Reason: "ChainEffective", Message: "..."})
//
// Both are JSON patches that test what they change, so that nothing of what others write meanwhile
// gets lost: a patch that comes too late is refused, and made anew from the node as it is then.
//
// Be aware:
//   - The taint is never added, and other taints are never touched. Whoever registers nodes adds
//     it.
//   - The condition has no heartbeat: it is written when it changes. A node's object is large,
//     nodes are many, and that an agent lives is seen by its pod. So it says what was so at its
//     transition, and as far as the agent knows still is.
//   - What Report has written once it takes to be there: that somebody else changes it is not seen
//     until the next change.
package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	// Taint is the key of the taint that keeps pods from a node whose chain is not in effect yet.
	Taint = "sidecar-cni.io/not-ready"
	// conditionType is the type of the condition.
	conditionType corev1.NodeConditionType = "SidecarCNIReady"
)

const (
	// requestTimeout is for one request.
	requestTimeout = 5 * time.Second
	// tries is how often a patch is made that others come before. They write a node some times a
	// minute.
	tries = 5
)

// Node is the agent's own. It serves one goroutine.
type Node struct {
	client *rest.RESTClient
	name   string
	said   *Condition // what is known to be written
}

// New returns a node by its name. The client is agent.NewClient's.
func New(client *rest.RESTClient, name string) *Node { return &Node{client: client, name: name} }

// Info returns the node as the API server has it.
func (n *Node) Info(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node := &corev1.Node{}
	err := n.client.Get().Resource("nodes").Name(n.name).MaxRetries(0).Do(ctx).Into(node)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", n.name, err)
	}
	return node, nil
}

// An operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// change patches what makes out of the node as it is, and reports whether there was anything to
// change.
func (n *Node) change(ctx context.Context, subresource string,
	makes func(*corev1.Node) []operation) (bool, error) {
	var err error
	for range tries {
		var node *corev1.Node
		if node, err = n.Info(ctx); err != nil {
			return false, err
		}
		operations := makes(node)
		if len(operations) == 0 {
			return false, nil
		}
		if err = n.patch(ctx, subresource, operations); err == nil {
			return true, nil
		}
		if !tooLate(err) {
			break
		}
	}
	return false, fmt.Errorf("patch node %s: %w", n.name, err)
}

// tooLate reports whether somebody has changed the node meanwhile. A test that does not hold is
// answered like a patch that makes no sense, but ours do.
func tooLate(err error) bool {
	var said apierrors.APIStatus
	return errors.As(err, &said) &&
		(said.Status().Code == http.StatusUnprocessableEntity ||
			said.Status().Code == http.StatusConflict)
}

func (n *Node) patch(ctx context.Context, subresource string, operations []operation) error {
	body, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := n.client.Patch(types.JSONPatchType).Resource("nodes").Name(n.name)
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	return request.Body(body).MaxRetries(0).Do(ctx).Error()
}
