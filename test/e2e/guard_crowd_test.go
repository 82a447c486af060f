//go:build e2e && soak

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	crowdPairs = 5
	// guardCosts is the product's promise: how much longer pods take that start all at once.
	guardCosts = 1.1
)

// TestGuardCrowd starts 110 pods at once, with the guard and without it by turns. `make soak` runs
// it: what it compares are medians of minutes.
func TestGuardCrowd(t *testing.T) {
	r := start(t, cluster.Options{Nodes: oneNode})
	r.install(t, inline...)
	took := map[string][]time.Duration{}
	for i := range crowdPairs {
		modes := []string{"auto", "off"}
		if i%2 == 1 {
			slices.Reverse(modes)
		}
		for _, mode := range modes {
			r.helmRun(t, "upgrade", chart(t, append(inline, "guard.mode="+mode)...)...)
			r.awaitProduct(t)
			if mode == "auto" {
				r.awaitMetric(t, r.Node(0), positive, "sidecar_cni_guard_connected")
			}
			space := fmt.Sprintf("%s-%d", mode, i)
			e, _ := r.crowd(t, space, 110)
			r.expectNoFailedSandbox(t, space)
			r.expectDeletable(t, space)
			t.Logf("guard.mode=%s: 110 pods were ready after %s", mode, e)
			took[mode] = append(took[mode], e.took)
		}
	}
	with, without := median(took["auto"]), median(took["off"])
	t.Logf("medians of %d: %s with the guard, %s without", crowdPairs, with, without)
	if with.Seconds() > guardCosts*without.Seconds() {
		t.Errorf("with the guard the median is %s, without %s", with, without)
	}
}

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }
