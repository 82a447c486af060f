//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/node"
)

// lookAtNode says that this machine is none.
func lookAtNode(context.Context, node.Options) (node.Report, error) {
	return node.Report{}, errors.New("look at this node: it is none, since nodes run Linux; run " +
		"this on a node, or sidecarctl cluster for what the API server knows of all nodes")
}
