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
func del(_ context.Context, c call, d deps) (o outcome, err error) {
	if c.netns != "" {
		n, err := openNamespace(c.netns)
		if errors.Is(err, podns.ErrHost) {
			return o, err
		}
		if err == nil {
			n.Close()
		}
	}
	there, err := d.records.Delete(c.attachment)
	o.ours = there || err != nil
	if err != nil {
		o.warnings = append(o.warnings, fmt.Sprintf("left a record behind: %v", err))
	}
	o.message, o.word = "released pod", "released"
	if !there {
		o.reason = "no_record"
	}
	return o, nil
}
