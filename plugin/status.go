package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
)

// status refuses only in a state that no retry mends: a runtime takes the whole node for not ready
// then, and pods that are not ours need nothing of what is looked at here. An agent or an API
// server that is away comes back.
func status(_ context.Context, c *call) error {
	_, err := backend.Find(c.Backend)
	if err := errors.Join(c.wrong(), err, c.usableState()); err != nil {
		return unavailable.fail("%w", err)
	}
	c.outcome.message, c.outcome.word = "reported status", "ready"
	return nil
}

// usableState looks whether something else stands where the records go.
func (c *call) usableState() error {
	info, err := os.Stat(c.StateDir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("use stateDir %q: it is not a directory", c.StateDir)
	}
	return nil
}
