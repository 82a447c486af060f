package repair

import (
	"slices"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// A pod that could not be looked at may turn out to be open: it is not left for minutes.
func TestWhatIsLookedAtAgainSoon(t *testing.T) {
	t.Parallel()
	soon := []Finding{Starting, Unreachable}
	for _, f := range audit.Findings {
		if got, want := unsettled([]Result{{Finding: Redirected}, {Finding: f}}),
			slices.Contains(soon, f); got != want {
			t.Errorf("a pod that is %s: unsettled is %v, want %v", f, got, want)
		}
	}
}
