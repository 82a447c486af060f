package main

import (
	"fmt"
	"os"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// leaveToInit has istio-validation, if the pod has it, wait for istio-init, which another webhook
// has given back to the pod: see package validate. Without that the pod does not start.
func leaveToInit(n *podns.Namespace) (warnings []string) {
	err := n.Do(func() error {
		return os.WriteFile(names.LoopbackTag, []byte(names.InitRestored), 0)
	})
	if err != nil {
		return []string{fmt.Sprintf("%v: istio-validation will stop this pod; have the webhook "+
			"that added istio-init put it first", err)}
	}
	return nil
}
