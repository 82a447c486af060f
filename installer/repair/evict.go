package repair

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// evict asks for a pod's eviction, if that is fit for it.
func (r *Repairer) evict(ctx context.Context, pod *corev1.Pod, x *Result) error {
	if why := spares(pod); why != "" {
		x.Outcome, x.Why = Spared, x.Why+"; it is not evicted: "+why
		return nil
	}
	if r.pauses.on(pod.UID, time.Now()) {
		x.Outcome = Deferred
		return nil
	}
	err := r.requestEviction(ctx, pod)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The pod is gone, or another has its name.
		x.Outcome = Evicted
	case apierrors.IsTooManyRequests(err):
		r.pauses.begin(pod.UID, time.Now())
		x.Outcome, x.Why = Deferred, x.Why+"; it is not evicted now: "+err.Error()
	default:
		x.Outcome, x.Err = Failed, fmt.Errorf("evict: %w", err)
	}
	return err
}

// spares says why a pod is not to be evicted, if it is not.
func spares(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return "it has no controller: nobody would create it anew"
	case owner.Kind == "Job" && pod.Spec.RestartPolicy == corev1.RestartPolicyNever &&
		pod.Status.Phase != corev1.PodPending:
		return "it runs a Job that must not be started twice (restartPolicy Never): its work " +
			"would be lost or be done again"
	}
	return ""
}

// requestEviction writes JSON itself: the client knows the types of core/v1 only.
func (r *Repairer) requestEviction(ctx context.Context, pod *corev1.Pod) error {
	body, err := json.Marshal(policyv1.Eviction{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(),
			Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return r.deps.Client.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("eviction").
		SetHeader("Content-Type", "application/json").Body(body).MaxRetries(0).Do(ctx).Error()
}

// The pauses before a pod is tried again whose eviction was forbidden: each is twice the last.
const (
	shortestPause = 30 * time.Second
	longestPause  = 10 * time.Minute
)

// pauses are those that pods have.
type pauses map[types.UID]pause

type pause struct {
	until  time.Time
	length time.Duration
}

func (p pauses) on(uid types.UID, now time.Time) bool { return now.Before(p[uid].until) }

func (p pauses) begin(uid types.UID, now time.Time) {
	length := min(max(2*p[uid].length, shortestPause), longestPause)
	p[uid] = pause{now.Add(length), length}
}

// keep forgets pods that are no more, and those that are not missing anything any more.
func (p pauses) keep(found map[types.UID]Finding) {
	for uid := range p {
		if found[uid] != Missing {
			delete(p, uid)
		}
	}
}
