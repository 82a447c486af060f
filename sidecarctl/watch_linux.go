package main

import (
	"context"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

// watchHere calls show with the events of a pod's network namespace.
func watchHere(ctx context.Context, at *spot, o watch.Options,
	show func(watch.Event) error) error {
	var w *watch.Watcher
	err := at.place.NS.Do(func() (err error) {
		w, err = watch.Open(o)
		return err
	})
	if w != nil {
		defer w.Close()
	}
	if err != nil {
		return err
	}
	return w.Run(ctx, show)
}
