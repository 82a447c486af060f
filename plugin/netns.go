package main

import (
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// openNamespace opens the pod's network namespace. The host's is refused.
func openNamespace(path string) (*podns.Namespace, error) {
	host, err := podns.FindHost("/proc", "the plugin")
	if err != nil {
		return nil, badNetns.fail("%w", err)
	}
	n, err := host.Open(path)
	if err != nil {
		return nil, badNetns.fail("%w", err)
	}
	return n, nil
}
