package kernel

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

func compile(t testing.TB, r matrix.Request) (redirect.Policy, redirect.Ruleset) {
	t.Helper()
	d, err := redirect.Decide(r.Pod, r.Config)
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("%s: the pod is not ours: %+v, %v", r.Name, d, err)
	}
	return d.Policy, redirect.Compile(d.Policy)
}

// testName makes a subtest's name that can be typed.
func testName(r matrix.Request) string { return strings.ReplaceAll(r.Name, " ", "_") }

func sortStrings(s []string) { slices.Sort(s) }
