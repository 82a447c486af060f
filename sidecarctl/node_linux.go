package main

import (
	"context"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/node"
)

// lookAtNode looks at this machine.
func lookAtNode(ctx context.Context, o node.Options) (node.Report, error) {
	return node.Look(ctx, o), nil
}
