//go:build !linux

package main

import (
	"context"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

func watchHere(context.Context, *spot, watch.Options, func(watch.Event) error) error {
	return here()
}
