package agent

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// synced starts the cache and waits until it has what there is.
func (r *rig) synced(t *testing.T) {
	t.Helper()
	run(t, r.pods.Run)
	if err := r.pods.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestWhoAnswers(t *testing.T) {
	t.Parallel()
	mirror := meshed("static", "mirror")
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = "hash"
	tests := map[string]struct {
		before func(*rig)    // what is there when the cache is filled; nil: it never is
		after  func(*rig)    // what the cache does not see
		ref    Ref           // what is asked for
		want   Verdict       // and the rest of the answer:
		uid    string        // of the pod that there is
		why    string        // a part of the sentence
		asked  int           // questions to the API server
		took   time.Duration // at most
	}{
		"the cache": {
			before: func(r *rig) { r.api.Put(meshed("web-0", "u0")) },
			ref:    Ref{"shop", "web-0", "u0"}, want: Found, uid: "u0",
		},
		"the cache, if no uid is named": {
			before: func(r *rig) { r.api.Put(meshed("web-0", "u0")) },
			ref:    Ref{"shop", "web-0", ""}, want: Found, uid: "u0",
		},
		"the cache, of a mirror pod whatever its uid": {
			before: func(r *rig) { r.api.Put(mirror) },
			ref:    Ref{"shop", "static", "hash"}, want: Found, uid: "mirror",
		},
		"the cache, while the API server is away": {
			before: func(r *rig) { r.api.Put(meshed("web-0", "u0")) },
			after:  func(r *rig) { r.api.Refuse(true); r.api.Break(apiserver.Cut) },
			ref:    Ref{"shop", "web-0", "u0"}, want: Found, uid: "u0",
		},
		"the API server, of a pod that the cache does not have": {
			before: func(*rig) {},
			after:  func(r *rig) { r.api.Put(meshed("web-0", "u0")) },
			ref:    Ref{"shop", "web-0", "u0"}, want: Found, uid: "u0", asked: 1,
		},
		"the API server, before there is a cache": {
			after: func(r *rig) { r.api.Put(meshed("web-0", "u0")) },
			ref:   Ref{"shop", "web-0", "u0"}, want: Found, uid: "u0", asked: 1,
		},
		"the API server, of a mirror pod whatever its uid": {
			after: func(r *rig) { r.api.Put(mirror) },
			ref:   Ref{"shop", "static", "hash"}, want: Found, uid: "mirror", asked: 1,
		},
		"the API server, if the cache has an older one of that name": {
			before: func(r *rig) { r.api.Put(meshed("web-0", "old")) },
			after:  func(r *rig) { r.api.Put(meshed("web-0", "new")) },
			ref:    Ref{"shop", "web-0", "new"}, want: Found, uid: "new", asked: 1,
		},
		"the API server, that there is none": {
			before: func(*rig) {},
			ref:    Ref{"shop", "web-0", "u0"}, want: Absent, asked: 1,
		},
		"the API server, that there is another": {
			before: func(r *rig) { r.api.Put(meshed("web-0", "u0")) },
			ref:    Ref{"shop", "web-0", "older"}, want: OtherUID, uid: "u0", asked: 1,
		},
		"nobody, if something else says 404": {
			after: func(r *rig) { r.api.Break(apiserver.SayText(404, 0, "404 page not found")) },
			ref:   Ref{"shop", "web-0", "u0"}, want: Unknown, asked: 1,
			why: "the API server answered the agent: 404",
		},
		"nobody, if it is away": {
			after: func(r *rig) { r.api.Refuse(true) },
			ref:   Ref{"shop", "web-0", "u0"}, want: Unknown,
			why: "the API server has not answered since 00:00:00: ",
		},
		"nobody, if it is away, though the cache has another of that name": {
			before: func(r *rig) { r.api.Put(meshed("web-0", "old")) },
			after:  func(r *rig) { r.api.Refuse(true); r.api.Break(apiserver.Cut) },
			ref:    Ref{"shop", "web-0", "new"}, want: Unknown, asked: 1,
			why: "has not answered since 00:00:00: ",
		},
		"nobody, if it is slow": {
			after: func(r *rig) { r.api.Break(apiserver.Slow(900 * time.Millisecond)) },
			ref:   Ref{"shop", "web-0", "u0"}, want: Unknown, asked: 1, why: "deadline exceeded",
			took: liveTimeout,
		},
		"nobody, if it wants to be left alone": {
			after: func(r *rig) {
				r.api.Break(apiserver.Say(apierrors.NewTooManyRequests("busy",
					60)))
			},
			ref: Ref{"shop", "web-0", "u0"}, want: Unknown, asked: 1,
			why: "answered the agent: 429 TooManyRequests: busy",
		},
		"nobody, if it refuses us": {
			after: func(r *rig) { r.api.Rotate("another") },
			ref:   Ref{"shop", "web-0", "u0"}, want: Unknown, asked: 1,
			why: "answered the agent: 401 Unauthorized",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t)
				if test.before != nil {
					test.before(r)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() { defer close(done); r.pods.Run(ctx) }()
					if err := r.pods.WaitForSync(ctx); err != nil {
						t.Fatal(err)
					}
					cancel()
					<-done
				}
				before := r.api.Requests()
				if test.after != nil {
					test.after(r)
				}
				began := time.Now()
				a := r.pods.Find(t.Context(), test.ref)
				if took := time.Since(began); took > test.took {
					t.Errorf("it took %v, want at most %v", took, test.took)
				}
				uid := string(a.UID)
				if a.Pod != nil {
					uid = string(a.Pod.UID)
				}
				if a.Verdict != test.want || uid != test.uid || !strings.Contains(a.Why, test.why) {
					t.Errorf("answered %q, uid %q, %q; want %q, %q, %q", a.Verdict, uid, a.Why,
						test.want, test.uid, test.why)
				}
				if asked := r.api.Requests() - before; asked != test.asked {
					t.Errorf("%d questions to the API server, want %d", asked, test.asked)
				}
				counted := 0.0
				if test.asked > 0 || test.want == Unknown {
					counted = 1
				}
				if got := testutil.ToFloat64(
					r.pods.gets.WithLabelValues(string(test.want))); got != counted {
					t.Errorf("%v live GETs with result %q counted, want %v", got, test.want,
						counted)
				}
			})
		})
	}
}

// ask puts questions together and returns the answers.
func (r *rig) ask(ctx context.Context, refs ...Ref) []Answer {
	answers := make([]Answer, len(refs))
	var wg sync.WaitGroup
	for i, ref := range refs {
		wg.Go(func() { answers[i] = r.pods.Find(ctx, ref) })
	}
	wg.Wait()
	return answers
}

// most tells how many requests an API server answers at once.
type most struct {
	mu       sync.Mutex
	now, max int
}

func (m *most) fault(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.now++
		m.max = max(m.max, m.now)
		m.mu.Unlock()
		next.ServeHTTP(w, r)
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	})
}

func TestQuestionsTogether(t *testing.T) {
	t.Parallel()
	t.Run("about one pod are one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t)
			r.api.Put(meshed("web-0", "u0"))
			r.api.Break(apiserver.Slow(100 * time.Millisecond))
			refs := make([]Ref, 110)
			for i := range refs {
				refs[i] = Ref{"shop", "web-0", "u0"}
			}
			for i, a := range r.ask(t.Context(), refs...) {
				if a.Verdict != Found {
					t.Fatalf("question %d: %+v, want the pod", i, a)
				}
			}
			if r.api.Requests() != 1 {
				t.Errorf("%d questions to the API server, want one", r.api.Requests())
			}
		})
	})
	t.Run("about a pod and another of its name are two", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t)
			r.api.Put(meshed("web-0", "u0"))
			r.api.Break(apiserver.Slow(100 * time.Millisecond))
			answers := r.ask(t.Context(), Ref{"shop", "web-0", "u0"}, Ref{"shop", "web-0", "u1"})
			if answers[0].Verdict != Found || answers[1].Verdict != OtherUID {
				t.Errorf("%+v, want one found and one of another uid", answers)
			}
		})
	})
	t.Run("about a full node are some at a time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t)
			var refs []Ref
			for i := range 110 {
				pod := meshed(fmt.Sprintf("web-%d", i), fmt.Sprintf("u%d", i))
				r.api.Put(pod)
				refs = append(refs, Ref{"shop", pod.Name, pod.UID})
			}
			seen := &most{}
			slow := apiserver.Slow(100 * time.Millisecond)
			r.api.Break(func(next http.Handler) http.Handler { return seen.fault(slow(next)) })
			for i, a := range r.ask(t.Context(), refs...) {
				if a.Verdict != Found || a.Pod.Name != refs[i].Name {
					t.Fatalf("question %d: %+v, want the pod", i, a)
				}
			}
			if seen.max != liveMost {
				t.Errorf("%d at once, want %d", seen.max, liveMost)
			}
		})
	})
	t.Run("wait for their turn no longer than for an answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t)
			r.api.Break(apiserver.Hang)
			refs := make([]Ref, 110)
			for i := range refs {
				refs[i] = Ref{"shop", fmt.Sprintf("web-%d", i), "u"}
			}
			began := time.Now()
			for i, a := range r.ask(t.Context(), refs...) {
				if a.Verdict != Unknown || a.Why == "" {
					t.Fatalf("question %d: %+v, want that nobody knows, and why", i, a)
				}
			}
			if took := time.Since(began); took != liveTimeout {
				t.Errorf("it took %v, want %v", took, liveTimeout)
			}
		})
	})
	t.Run("do not depend on who gives up first", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t)
			r.api.Put(meshed("web-0", "u0"))
			r.api.Break(apiserver.Slow(500 * time.Millisecond))
			hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			first := make(chan Answer)
			go func() { first <- r.pods.Find(hasty, Ref{"shop", "web-0", "u0"}) }()
			synctest.Wait()
			patient := make(chan Answer)
			go func() { patient <- r.pods.Find(t.Context(), Ref{"shop", "web-0", "u0"}) }()
			got := []Verdict{(<-first).Verdict, (<-patient).Verdict}
			if diff := cmp.Diff([]Verdict{Unknown, Found}, got); diff != "" ||
				r.api.Requests() != 1 {
				t.Errorf("%d requests, want one; answers (-want +got):\n%s", r.api.Requests(), diff)
			}
		})
	})
}

func TestSilenceIsToldOnceAndFromItsBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		r.api.Refuse(true)
		r.pods.Find(t.Context(), Ref{"shop", "web-0", "u0"})
		time.Sleep(time.Hour)
		a := r.pods.Find(t.Context(), Ref{"shop", "web-0", "u0"})
		if !strings.Contains(a.Why, "since 00:00:00") {
			t.Errorf("%q, want since midnight", a.Why)
		}
		r.api.Refuse(false)
		r.pods.Find(t.Context(), Ref{"shop", "web-0", "u0"})
		r.api.Refuse(true)
		r.api.Break(apiserver.Cut)
		a = r.pods.Find(t.Context(), Ref{"shop", "web-0", "u0"})
		if !strings.Contains(a.Why, "since 01:00:00") {
			t.Errorf("%q, want since one o'clock", a.Why)
		}
	})
}
