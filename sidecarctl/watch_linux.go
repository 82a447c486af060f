package main

import (
	"context"

	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/watch"
)

// watchIn calls show with the events of the network namespace at a path.
func watchIn(ctx context.Context, path string, o watch.Options,
	show func(watch.Event) error) error {
	host, err := podns.FindHost("/proc", "sidecarctl")
	if err != nil {
		return err
	}
	ns, err := host.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return watchNamespace(ctx, ns, o, show)
}

// watchNamespace does the same in an open namespace.
func watchNamespace(ctx context.Context, ns *podns.Namespace, o watch.Options,
	show func(watch.Event) error) error {
	var w *watch.Watcher
	err := ns.Do(func() (err error) {
		w, err = watch.Open(o)
		return err
	})
	if err != nil {
		if w != nil {
			w.Close()
		}
		return err
	}
	defer w.Close()
	return w.Run(ctx, show)
}
