package nodestatus

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is what is said of the node.
type Condition struct {
	Ready   bool   // the condition's status
	Reason  string // one word, as ChainEffective
	Message string // a sentence that stays the same while nothing happens
}

// Report writes the condition if it is not what the node says already, and reports whether it had
// to.
func (n *Node) Report(ctx context.Context, c Condition) (bool, error) {
	if n.said != nil && *n.said == c {
		return false, nil
	}
	now := metav1.NewTime(time.Now())
	written, err := n.change(ctx, "status",
		func(node *corev1.Node) []operation { return c.put(node, now) })
	if err != nil {
		return false, fmt.Errorf("report condition %s: %w", conditionType, err)
	}
	n.said = &c
	return written, nil
}

// Withdraw takes the condition away, and reports whether it was there.
func (n *Node) Withdraw(ctx context.Context) (bool, error) {
	n.said = nil
	removed, err := n.change(ctx, "status", withoutCondition)
	if err != nil {
		return false, fmt.Errorf("remove condition %s: %w", conditionType, err)
	}
	return removed, nil
}

func withoutCondition(node *corev1.Node) []operation {
	i := slices.IndexFunc(node.Status.Conditions,
		func(have corev1.NodeCondition) bool { return have.Type == conditionType })
	if i < 0 {
		return nil
	}
	path := fmt.Sprintf("/status/conditions/%d", i)
	return []operation{{"test", path + "/type", conditionType}, {Op: "remove", Path: path}}
}

func (c Condition) status() corev1.ConditionStatus {
	if c.Ready {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// put replaces the condition where it is, or adds it to a list that nobody has changed: two agents
// must not both add it.
func (c Condition) put(node *corev1.Node, now metav1.Time) []operation {
	want := corev1.NodeCondition{
		Type: conditionType, Status: c.status(), Reason: c.Reason, Message: c.Message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	unchanged := operation{"test", "/metadata/resourceVersion", node.ResourceVersion}
	i := slices.IndexFunc(node.Status.Conditions,
		func(have corev1.NodeCondition) bool { return have.Type == conditionType })
	switch {
	case len(node.Status.Conditions) == 0:
		return []operation{unchanged, {"add", "/status/conditions", []corev1.NodeCondition{want}}}
	case i < 0:
		return []operation{unchanged, {"add", "/status/conditions/-", want}}
	}
	have, path := node.Status.Conditions[i], fmt.Sprintf("/status/conditions/%d", i)
	if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return nil
	}
	if have.Status == want.Status {
		want.LastTransitionTime = have.LastTransitionTime
	}
	return []operation{{"test", path + "/type", conditionType}, {"replace", path, want}}
}
