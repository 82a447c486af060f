package agent

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// begun answers a watch and says nothing more for some minutes.
func begun(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(3 * time.Minute):
		}
	})
}

// The cache follows the API server from a complete list on, as long as a watch goes on from there.
func TestFollowing(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t)
				if older {
					r.api.WithoutWatchLists()
				}
				r.api.Put(meshed("old", "u0"))
				is := func(when string, want bool) {
					t.Helper()
					synctest.Wait()
					if got := r.pods.Follows(); got != want {
						t.Errorf("%s it follows: %v, want %v", when, got, want)
					}
				}
				is("before it runs", false)
				run(t, r.pods.Run)
				is("after the first list", true)
				r.api.Break(apiserver.Cut)
				r.api.DropWatches()
				time.Sleep(time.Minute)
				is("while the API server is away", false)
				r.api.Break(nil)
				time.Sleep(time.Minute)
				is("when the API server is back", true)
				r.api.DropWatches()
				time.Sleep(time.Minute)
				is("after a watch has ended", true)
				if older {
					return // its watches begin with no list
				}
				r.api.Break(apiserver.Cut)
				r.api.DropWatches()
				r.api.Put(meshed("new", "u1"))
				r.api.Compact()
				r.api.Break(listless)
				time.Sleep(time.Minute)
				is("in the middle of another list", false)
				r.api.Break(nil)
				time.Sleep(5 * time.Minute)
				is("at the end", true)
				r.checkNames(t, "new", "old")
			})
		})
	}
}

// listless begins with each streamed list, and ends none.
func listless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			begun(next).ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Whoever waits for a change finds it in the cache.
func TestChangesAreSignalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t)
		run(t, r.pods.Run)
		synctest.Wait()
		signalled := func() bool {
			synctest.Wait()
			select {
			case <-r.pods.Changed():
				return true
			default:
				return false
			}
		}
		if !signalled() || signalled() {
			t.Error("the first list is not signalled, or several times")
		}
		pod := meshed("web-0", "u0")
		for name, change := range map[string]func(){
			"a new pod":          func() { r.api.Put(pod) },
			"several changes":    func() { r.api.Put(pod); r.api.Put(pod) },
			"a pod that is gone": func() { r.api.Put(pod); r.api.Remove(pod) },
		} {
			change()
			if !signalled() || signalled() {
				t.Errorf("%s: not signalled, or several times", name)
			}
		}
		time.Sleep(time.Second)
		r.api.DropWatches()
		time.Sleep(time.Minute)
		if !signalled() {
			t.Error("a watch that was opened again is not signalled")
		}
	})
}

// A class that is made anew may have another handler, so what is known of it may be out of date
// while nothing is heard of the classes.
func TestFollowingClasses(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := apiserver.Start(t)
			if older {
				api.WithoutWatchLists()
			}
			classes, err := NewClasses(api.Config(), zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			if classes.Follows() {
				t.Error("it follows before it runs")
			}
			run(t, classes.Run)
			await.Until(t, "it to follow", classes.Follows)
			api.Break(apiserver.Cut)
			api.DropWatches()
			await.Until(t, "it not to follow", func() bool { return !classes.Follows() })
			api.Break(nil)
			await.Until(t, "it to follow again", classes.Follows)
		})
	}
}
