package repair

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Pods that could not be looked at are looked at again after firstLook, then after twice as long,
// and so on: after a reboot many come back together, and not all of them before the agent.
const firstLook = time.Second

// Soon asks for a look at the pods; one that is asked for already is enough.
func (r *Repairer) Soon() {
	select {
	case r.soon <- struct{}{}:
	default:
	}
}

// Run looks at the running pods until ctx ends: when the cache of pods is filled, whenever Soon is
// called, and every now and then. In mode Off only records of pods that are gone are dropped.
func (r *Repairer) Run(ctx context.Context, waitForPods func(context.Context) error,
	every time.Duration) {
	if waitForPods(ctx) != nil {
		return
	}
	pause := firstLook
	for {
		again, err := r.lookOnce(ctx)
		if err != nil && ctx.Err() == nil {
			r.deps.Log.Warn("pods not checked", zap.Error(err))
		}
		wait := every
		if again {
			wait = min(pause, wait)
			pause = min(2*pause, every)
		} else {
			pause = firstLook
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.soon:
			timer.Stop()
			pause = firstLook
		case <-timer.C:
		}
	}
}

// lookOnce does not evict while the chain is not in effect: what is created anew would be no
// better. It reports whether some pods are unsettled.
func (r *Repairer) lookOnce(ctx context.Context) (bool, error) {
	if r.cfg.Mode == Evict && !r.deps.Ready() {
		return false, nil
	}
	summary, err := r.Pass(ctx)
	return unsettled(summary.Results), err
}

// unsettled reports whether some pods are starting, or were not found: after a reboot a pod has its
// old address until the kubelet reports, and no process until its network is set up, which may be
// by the chain of before our entry.
func unsettled(results []Result) bool {
	return slices.ContainsFunc(results, func(x Result) bool {
		return x.Finding == Starting || x.Finding == Unreachable
	})
}
