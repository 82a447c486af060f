package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// liveTimeout leaves of the second that the plugin gives us enough to answer.
	liveTimeout = 800 * time.Millisecond
	// liveMost is how many live GETs run at once, the others wait: a node's pods may all start
	// together, and each may be as large as the API server takes them.
	liveMost = 16
)

// Ref names a pod. An empty UID means whichever has the name.
type Ref struct {
	Namespace, Name string    // of the pod; neither is empty
	UID             types.UID // as the runtime knows it; "" is any
}

// Verdict is how a search for a pod ended.
type Verdict string

// The verdicts.
const (
	Found    Verdict = "found"
	Absent   Verdict = "absent"    // the API server has no pod of that name
	OtherUID Verdict = "other_uid" // the API server has another one of that name
	Unknown  Verdict = "unknown"   // the API server does not answer
)

var verdicts = []Verdict{Found, Absent, OtherUID, Unknown}

// Answer is what is known of a pod.
type Answer struct {
	Verdict Verdict     // says which of the other fields is set
	Pod     *corev1.Pod // Found; shared, not to be changed
	UID     types.UID   // OtherUID: the one that it has
	Why     string      // Unknown: a sentence
}

// match compares a pod with the question. The mirror of a static pod has another uid than the
// runtime has. Of a pod that is too large it only says so: the plugin, who then asks the API
// server, has memory of its own.
func (r Ref) match(pod *corev1.Pod) Answer {
	switch {
	case r.UID != "" && r.UID != pod.UID && !mirrored(pod):
		return Answer{Verdict: OtherUID, UID: pod.UID}
	case !Complete(pod):
		return Answer{Verdict: Unknown,
			Why: "its containers take more than the agent keeps of a pod"}
	}
	return Answer{Verdict: Found, Pod: pod}
}

func mirrored(pod *corev1.Pod) bool { return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// Find returns the node's pod, asking the API server for one that is not there.
func (p *Pods) Find(ctx context.Context, ref Ref) Answer {
	if pod := p.store.get(ref.Namespace, ref.Name); pod != nil {
		if a := ref.match(pod); a.Verdict != OtherUID {
			return a
		}
	}
	// Whoever asks the same meanwhile gets the same answer, so it does not end with the one who
	// asked first.
	flight := p.flights.DoChan(ref.Namespace+"/"+ref.Name+"/"+string(ref.UID), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveTimeout)
		defer cancel()
		return p.ask(ctx, ref), nil
	})
	select {
	case result := <-flight:
		return result.Val.(Answer)
	case <-ctx.Done():
		return Answer{Verdict: Unknown, Why: "the question was given up"}
	}
}

func (p *Pods) ask(ctx context.Context, ref Ref) Answer {
	a := p.getLive(ctx, ref)
	p.gets.WithLabelValues(string(a.Verdict)).Inc()
	return a
}

func (p *Pods) getLive(ctx context.Context, ref Ref) Answer {
	began := time.Now()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		p.contact.note(began, ctx.Err())
		return Answer{Verdict: Unknown, Why: p.contact.describe(ctx.Err())}
	}
	pod := &corev1.Pod{}
	err := p.client.Get().Namespace(ref.Namespace).Resource("pods").Name(ref.Name).MaxRetries(0).
		Do(quiet(ctx)).Into(pod)
	p.contact.note(began, err)
	switch {
	case err == nil:
		return ref.match(strip(pod))
	case noSuchPod(err):
		return Answer{Verdict: Absent}
	default:
		return Answer{Verdict: Unknown, Why: p.contact.describe(err)}
	}
}

// noSuchPod tells the API server's 404 from that of something else at its address.
func noSuchPod(err error) bool {
	var said apierrors.APIStatus
	return errors.As(err, &said) && said.Status().Code == http.StatusNotFound &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
