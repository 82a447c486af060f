package repair

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// requestTimeout is for one request to the API server.
const requestTimeout = 5 * time.Second

// act does about pods what the API server is needed for. If that is away, the rest is left to the
// next pass.
func (r *Repairer) act(ctx context.Context, pods []*corev1.Pod, results []Result) {
	byUID := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		byUID[pod.UID] = pod
	}
	away := false
	for i := range results {
		x, pod := &results[i], byUID[results[i].UID]
		if x.Finding == Missing && x.Outcome == "" {
			x.Outcome = Reported
		}
		if x.Outcome == Reported && r.cfg.Mode == Evict && !away {
			away = isAway(r.evict(ctx, pod, x))
		}
		if !away {
			away = isAway(r.label(ctx, pod, x))
		}
		r.warn(pod, x)
	}
}

// isAway tells an API server that does not answer from one that refuses.
func isAway(err error) bool {
	var said apierrors.APIStatus
	return err != nil && !errors.As(err, &said)
}
