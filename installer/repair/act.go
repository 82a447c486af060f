package repair

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// requestBound is for one request to the API server.
const requestBound = 5 * time.Second

// act does about pods what the API server is needed for. If that is away, the rest is left to the next pass.
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
		r.tell(pod, x)
	}
}

// isAway tells an API server that does not answer from one that refuses.
func isAway(err error) bool {
	var said apierrors.APIStatus
	return err != nil && !errors.As(err, &said)
}

// label sets our label on a pod without redirection, and takes it away from one that has got some.
func (r *Repairer) label(ctx context.Context, pod *corev1.Pod, x *Result) error {
	const missing = string(Missing)
	_, labelled := pod.Labels[r.cfg.Label]
	var value any
	switch finding := x.now(); {
	case r.cfg.Label == "", finding == Unreachable, finding == Starting, x.Outcome == Evicted:
		return nil
	case finding == Missing && pod.Labels[r.cfg.Label] != missing:
		value = missing
	case finding == Missing, !labelled:
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "labels": map[string]any{r.cfg.Label: value}, // of another pod of that name the uid is refused
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	err = r.deps.Client.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		Body(patch).MaxRetries(0).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		r.deps.Log.Warn("left label of pod as it was", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
	return err
}
