//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

// watchIn refuses: there are no network namespaces here.
func watchIn(context.Context, string, watch.Options, func(watch.Event) error) error {
	return errors.New("--netns: there are no network namespaces on this system: run it on the " +
		"pod's node")
}
