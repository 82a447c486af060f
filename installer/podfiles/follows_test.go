package podfiles

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// A file has what the API server says of its pod, and of the pod's runtime class.
func TestBothWatchesMustStand(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"/pods", "/runtimeclasses"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			api := apiserver.Start(t)
			client, err := agent.NewClient(api.Config())
			must(t, err)
			classes, err := agent.NewClasses(api.Config(), zap.NewNop())
			must(t, err)
			pods := agent.NewPods(client, "node-a", prometheus.NewRegistry(), zap.NewNop())
			files := New(Deps{Run: t.TempDir(), Classes: classes, Pods: pods,
				Registry: prometheus.NewRegistry(), Log: zap.NewNop()})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { pods.Run(ctx) })
			running.Go(func() { classes.Run(ctx) })
			defer running.Wait()
			defer cancel()
			broken, other := pods.Follows, classes.Follows
			if resource == "/runtimeclasses" {
				broken, other = other, broken
			}
			await.Until(t, "both watches", files.cache.follows)
			api.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, resource) {
						w.WriteHeader(http.StatusForbidden)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			api.DropWatches()
			await.Until(t, "one watch", func() bool { return other() && !broken() })
			if files.cache.follows() {
				t.Error("one watch is broken, and the files may be fresh")
			}
			api.Break(nil)
			await.Until(t, "both watches again", files.cache.follows)
		})
	}
}
