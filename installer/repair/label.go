package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

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
	err := setLabels(ctx, r.deps.Client, pod, map[string]any{r.cfg.Label: value})
	if err != nil {
		r.deps.Log.Warn("left label of pod as it was",
			zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
	return err
}

// setLabels changes labels of a pod that is still the same; nil takes one away. A pod that is gone
// needs none.
func setLabels(ctx context.Context, client *rest.RESTClient, pod *corev1.Pod,
	labels map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "labels": labels, // of another pod of that name the uid is refused
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = client.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource("pods").
		Name(pod.Name).
		Body(patch).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Unlabel takes our label away from all pods of a node, and returns from how many. The client is
// agent.NewClient's.
func Unlabel(ctx context.Context, client *rest.RESTClient, node string) (int, error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var pods corev1.PodList
	err := client.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node).
		Param("labelSelector", Label).
		Param("resourceVersion", "0"). // from the API server's cache: all nodes may ask at once
		MaxRetries(0).Do(asking).Into(&pods)
	if err != nil {
		return 0, fmt.Errorf("list labelled pods: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		errs = append(errs, setLabels(ctx, client, &pods.Items[i], map[string]any{Label: nil}))
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("remove label %s: %w", Label, err)
	}
	return len(pods.Items), nil
}
