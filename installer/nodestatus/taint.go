package nodestatus

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// RemoveTaint takes the taint away, with whatever effects it is there, and reports whether it was.
// A node that has it again is one that somebody has tainted anew.
func (n *Node) RemoveTaint(ctx context.Context) (bool, error) {
	removed, err := n.change(ctx, "", withoutTaint)
	if err != nil {
		return false, fmt.Errorf("remove taint %s: %w", Taint, err)
	}
	return removed, nil
}

// withoutTaint tests that what it removes is what it has seen: in a list, a place may come to be
// another's. From the end on, the places before keep their numbers.
func withoutTaint(node *corev1.Node) []operation {
	var operations []operation
	for i, taint := range slices.Backward(node.Spec.Taints) {
		if taint.Key != Taint {
			continue
		}
		path := fmt.Sprintf("/spec/taints/%d", i)
		operations = append(operations, operation{"test", path, taint},
			operation{Op: "remove", Path: path})
	}
	return operations
}
