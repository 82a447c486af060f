package events

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

var web = corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0",
	UID: "5d1c"}

const reason = "SidecarRedirectFailed"

// A rig is an API server and the Events that are written to it.
type rig struct {
	api    *apiserver.Server
	events *Events
}

const nodeName = "node-1"

// inMemory makes a rig for a synctest bubble.
func inMemory(t *testing.T) *rig {
	t.Helper()
	r := &rig{api: apiserver.InMemory(t)}
	client, err := NewClient(r.api.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Client.CloseIdleConnections)
	r.events = New(client, corev1.EventSource{Component: "sidecar-cni", Host: nodeName},
		prometheus.NewPedanticRegistry(), zap.NewNop())
	return r
}

// run runs something until the test ends.
func run(t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// results are how many happenings ended how.
func (r *rig) results() map[string]int {
	got := map[string]int{}
	for _, result := range []string{created, added, limited, dropped, refused} {
		if n := int(testutil.ToFloat64(r.events.results.WithLabelValues(result))); n > 0 {
			got[result] = n
		}
	}
	return got
}

// counts are the Events that the API server has, by message.
func (r *rig) counts() map[string]int {
	got := map[string]int{}
	for _, e := range r.api.Events() {
		got[e.Message] += int(e.Count)
	}
	return got
}

func TestEvents(t *testing.T) {
	t.Parallel()
	pod := func(i int) corev1.ObjectReference {
		about := web
		about.Name, about.UID = fmt.Sprintf("web-%d", i), "u"
		return about
	}
	tests := map[string]struct {
		happens func(*rig)
		counts  map[string]int
		results map[string]int
	}{
		"what happens once is an Event": {
			happens: func(r *rig) { r.events.Warn(web, reason, "denied") },
			counts:  map[string]int{"denied": 1}, results: map[string]int{created: 1},
		},
		"what happens again is added to it": {
			happens: func(r *rig) {
				for range 3 {
					r.events.Warn(web, reason, "denied")
				}
			},
			counts: map[string]int{"denied": 3}, results: map[string]int{created: 1, added: 2},
		},
		"what differs in numbers is the same, told as it was last": {
			happens: func(r *rig) {
				r.events.Warn(web, reason, "denied (2ms)")
				r.events.Warn(web, reason, "denied (17ms)")
			},
			counts:  map[string]int{"denied (17ms)": 2},
			results: map[string]int{created: 1, added: 1},
		},
		"what differs in message, reason, kind or object is another": {
			happens: func(r *rig) {
				r.events.Warn(web, reason, "denied")
				r.events.Warn(web, reason, "no source")
				r.events.Warn(web, "Other", "denied")
				r.events.Note(web, reason, "denied")
				r.events.Warn(pod(1), reason, "denied")
				other := web
				other.UID = "a1da"
				r.events.Warn(other, reason, "denied")
			},
			counts:  map[string]int{"denied": 5, "no source": 1},
			results: map[string]int{created: 6},
		},
		"what happens to an object too often counts in the next": {
			happens: func(r *rig) {
				for range 20 {
					r.events.Warn(web, reason, "denied")
				}
				time.Sleep(objectEvery)
				r.events.Warn(web, reason, "denied")
			},
			counts:  map[string]int{"denied": 21},
			results: map[string]int{created: 1, added: objectBurst, limited: 20 - objectBurst},
		},
		"an object that is told of too often does not silence others": {
			happens: func(r *rig) {
				for range 2 * totalBurst {
					r.events.Warn(web, reason, "denied")
				}
				r.events.Warn(pod(1), reason, "no source")
			},
			counts: map[string]int{"denied": objectBurst, "no source": 1},
			results: map[string]int{created: 2, added: objectBurst - 1,
				limited: 2*totalBurst - objectBurst},
		},
		"what happens to too many objects is limited": {
			happens: func(r *rig) {
				for i := range 2 * totalBurst {
					r.events.Warn(pod(i), reason, "denied")
				}
			},
			counts:  map[string]int{"denied": totalBurst},
			results: map[string]int{created: totalBurst, limited: totalBurst},
		},
		"one that has expired is written anew, with all that it counted": {
			happens: func(r *rig) {
				r.events.Warn(web, reason, "denied")
				synctest.Wait()
				r.api.ForgetEvents()
				r.events.Warn(web, reason, "denied")
			},
			counts: map[string]int{"denied": 2}, results: map[string]int{created: 2},
		},
		"one that was refused is written the next time": {
			happens: func(r *rig) {
				r.api.Break(apiserver.Say(apierrors.NewForbidden(corev1.Resource("events"), "",
					nil)))
				r.events.Warn(web, reason, "denied")
				synctest.Wait()
				r.api.Break(nil)
				r.events.Warn(web, reason, "denied")
			},
			counts: map[string]int{"denied": 2}, results: map[string]int{refused: 1, created: 1},
		},
		"one that is not answered is given up": {
			happens: func(r *rig) {
				r.api.Break(apiserver.First(1, apiserver.Hang))
				r.events.Warn(web, reason, "denied")
				r.events.Warn(pod(1), reason, "no source")
				time.Sleep(writeTimeout)
			},
			counts: map[string]int{"no source": 1}, results: map[string]int{refused: 1, created: 1},
		},
		"one about what has no namespace is in default": {
			happens: func(r *rig) {
				r.events.Warn(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName,
					UID: nodeName}, "ChainConflict", "overwritten")
			},
			counts: map[string]int{"overwritten": 1}, results: map[string]int{created: 1},
		},
		"one about a long name, with a long message": {
			happens: func(r *rig) {
				about := web
				about.Name = strings.Repeat("a", 199) + "." + strings.Repeat("b", 53)
				r.events.Warn(about, reason, strings.Repeat("ä", 1000))
			},
			counts:  map[string]int{strings.Repeat("ä", 512): 1},
			results: map[string]int{created: 1},
		},
		"what happens while too much waits is dropped": {
			happens: func(r *rig) {
				r.api.Break(apiserver.Hang)
				r.events.Warn(web, reason, "denied")
				synctest.Wait() // that one is being written
				for i := range queued + 10 {
					r.events.Warn(pod(i), reason, "denied")
				}
				r.api.Break(nil)
				time.Sleep(2 * writeTimeout)
			},
			counts: map[string]int{"denied": totalBurst}, // what the one has cost is there again
			results: map[string]int{refused: 1, dropped: 10, created: totalBurst,
				limited: queued - totalBurst},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t)
				run(t, r.events.Run)
				test.happens(r)
				synctest.Wait()
				if diff := cmp.Diff(test.counts, r.counts()); diff != "" {
					t.Errorf("counts by message (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.results, r.results()); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAnEventAsKubectlShowsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		run(t, r.events.Run)
		first := metav1.NewTime(time.Now())
		r.events.Warn(web, reason, "denied (2ms)")
		time.Sleep(10 * time.Second)
		r.events.Warn(web, reason, "denied (3ms)")
		synctest.Wait()
		events := r.api.Events()
		if len(events) != 1 {
			t.Fatalf("%d events, want one", len(events))
		}
		got := *events[0]
		if !strings.HasPrefix(got.Name, "web-0.") {
			t.Errorf("name %q, want it to begin with the pod's", got.Name)
		}
		got.TypeMeta, got.ObjectMeta = metav1.TypeMeta{},
			metav1.ObjectMeta{Namespace: got.Namespace}
		want := corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, InvolvedObject: web, Type: "Warning",
			Reason: reason, Message: "denied (3ms)",
			Count: 2, Source: corev1.EventSource{Component: "sidecar-cni", Host: nodeName},
			ReportingController: "sidecar-cni",
			FirstTimestamp:      first, LastTimestamp: metav1.NewTime(first.Add(10 * time.Second)),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	})
}

func TestTellingNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t) // nobody runs its Events
		for range queued + 1 {
			r.events.Warn(web, reason, "denied")
		}
		if diff := cmp.Diff(map[string]int{dropped: 1}, r.results()); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.events.Run(ctx) // ends
	})
}
