package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// del forgets an attachment. The rules go with the namespace: taking them away earlier would let a
// pod that is about to end talk past its proxy. Nothing but the host's namespace is refused, since
// a DEL that fails holds up the end of the pod.
func del(_ context.Context, c *call) error {
	if c.netns != "" {
		n, err := openNamespace(c.netns)
		if errors.Is(err, podns.ErrHost) {
			return err
		}
		if err == nil {
			n.Close()
		}
	}
	there, err := c.records().Delete(c.attachment)
	if there || err != nil {
		c.claim()
	}
	if err != nil {
		c.Warnings = append(c.Warnings, fmt.Sprintf("left a record behind: %v", err))
	}
	c.outcome.message, c.outcome.word = "released pod", "released"
	if !there {
		c.outcome.reason = "no_record"
	}
	return nil
}
