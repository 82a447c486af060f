package main

import (
	"slices"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/installer/repair"
)

// A pod that could not be looked at may turn out to be open: it is not left for minutes.
func TestWhatIsLookedAtAgainSoon(t *testing.T) {
	t.Parallel()
	soon := []repair.Finding{repair.Starting, repair.Unreachable}
	for _, f := range repair.Findings {
		if got, want := unsettled([]repair.Result{{Finding: repair.Redirected}, {Finding: f}}), slices.Contains(soon, f); got != want {
			t.Errorf("a pod that is %s: unsettled is %v, want %v", f, got, want)
		}
	}
}
