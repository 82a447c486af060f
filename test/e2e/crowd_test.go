//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const crowdSize = 100

// TestCrowd starts a hundred pods at once on a node, first without the product and then with it.
// What that costs is reported; what is demanded is that all are redirected.
func TestCrowd(t *testing.T) {
	r := start(t, cluster.Options{Nodes: oneNode})
	r.eachNode(func(n *cluster.Node) { loadProduct(t, n) })
	before, _ := r.crowd(t, "before", crowdSize)
	r.expectDeletable(t, "before")
	r.install(t)
	after, all := r.crowd(t, "after", crowdSize)
	r.expectNoFailedSandbox(t, "after")
	for i := range all {
		r.expectRedirected(t, &all[i])
	}
	asked, err := r.metric(t.Context(), r.Node(0), "sidecar_cni_live_gets_total")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods at once on one node: %v without the product, %v with it; of the latter's "+
		"requests the agent's about pods were %v",
		crowdSize, before, after, asked)
}

type effort struct {
	took     time.Duration
	requests int
}

func (e effort) String() string {
	return fmt.Sprintf("%s and %d requests to the API server", e.took.Round(100*time.Millisecond),
		e.requests)
}

// crowd waits with one watch, so as not to be much of what it counts, and with another one where
// that breaks.
func (r *rig) crowd(t *testing.T, space string, size int) (effort, []corev1.Pod) {
	t.Helper()
	r.namespace(t, space, "restricted")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	pods := r.Client().CoreV1().Pods(space)
	requests, begin := r.requests(t), time.Now()
	for i := range size {
		r.create(t, on("node0", unvalidated(space, fmt.Sprintf("pod-%d", i))))
	}
	ready := map[string]bool{}
	for len(ready) < size {
		events, err := pods.Watch(ctx, metav1.ListOptions{}) // it begins with what there is
		if ctx.Err() != nil {
			t.Fatalf("%d of %d pods are ready after %s: %v", len(ready), size, time.Since(begin),
				err)
		}
		if err != nil {
			<-time.After(time.Second)
			continue
		}
		for event := range events.ResultChan() {
			if p, ok := event.Object.(*corev1.Pod); ok && cluster.Ready(p) == nil {
				ready[p.Name] = true
			}
			if len(ready) == size {
				break
			}
		}
		events.Stop()
	}
	e := effort{time.Since(begin), r.requests(t) - requests}
	all, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e, all.Items
}

// requests is how many the API server has answered.
func (r *rig) requests(t *testing.T) int {
	t.Helper()
	metrics, err := r.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range bytes.Lines(metrics) {
		if !bytes.HasPrefix(line, []byte("apiserver_request_total{")) {
			continue
		}
		n, err := strconv.Atoi(string(bytes.TrimSpace(line[bytes.LastIndexByte(line, ' ')+1:])))
		if err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		sum += n
	}
	return sum
}
