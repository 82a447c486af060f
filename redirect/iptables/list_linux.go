package iptables

import (
	"context"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// List returns what the save program of a family prints, counters included; "" if the host has none
// for it.
func (t *Tables) List(ctx context.Context, f redirect.Family) (string, error) {
	tools, ok := t.tools[f]
	if !ok {
		return "", nil
	}
	out, err := run(ctx, "", tools.save, "-c")
	if err != nil {
		return "", fmt.Errorf("list %s for %s: %w", t.variant, f, err)
	}
	return out, nil
}
