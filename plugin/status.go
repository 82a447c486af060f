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
func status(_ context.Context, c call, _ deps) (o outcome, err error) {
	_, err = backend.Find(c.conf.Backend)
	if err := errors.Join(c.wrong(), err, c.usableState()); err != nil {
		return o, unavailable.fail("%w", err)
	}
	o.message, o.word = "reported status", "ready"
	return o, nil
}

// usableState looks whether something else stands where the records go.
func (c call) usableState() error {
	info, err := os.Stat(c.conf.StateDir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("use stateDir %q: it is not a directory", c.conf.StateDir)
	}
	return nil
}
