package verify

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// Whether a pod is amiss, and what to do, by what its rules are.
func TestEachFindingOfTheRules(t *testing.T) {
	t.Parallel()
	wrong := map[audit.Finding]bool{audit.Missing: true, audit.Altered: true,
		audit.Unreachable: true}
	for _, finding := range audit.Findings {
		all := ofRules(audit.Judgement{Finding: finding, Why: "because"})
		if finding == audit.Redirected {
			if len(all) > 0 {
				t.Errorf("%s: %+v", finding, all)
			}
			continue
		}
		if len(all) != 1 || all[0].Wrong != wrong[finding] ||
			!strings.Contains(all[0].What, "because") {
			t.Errorf("%s: %+v, want wrong to be %v", finding, all, wrong[finding])
		}
		if finding != audit.Unreachable && all[0].Remedy == "" { // there Lacks says it
			t.Errorf("%s: no remedy", finding)
		}
	}
	differs := ofRules(audit.Judgement{Finding: audit.Foreign, Why: "because", Differ: 1,
		Problems: []redirect.Problem{{Where: "lo", What: "missing: it"}}})
	if len(differs) != 1 || !differs[0].Wrong || differs[0].What != "because: 1 differ: lo: missing: it" {
		t.Errorf("rules that differ from what the pod asks for: %+v", differs)
	}
	unhit := ofRules(audit.Judgement{Finding: audit.Redirected, Unhit: true})
	if len(unhit) != 1 || unhit[0].Wrong || !strings.Contains(unhit[0].What, "no packet") {
		t.Errorf("rules that no packet meets: %+v", unhit)
	}
}

func TestOnlyTheFirstDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	j := audit.Judgement{Finding: audit.Altered, Why: "it differs", Differ: 30}
	for range 20 {
		j.Problems = append(j.Problems, redirect.Problem{Where: "lo", What: "missing: it"})
	}
	got := ofRules(j)[0].What
	if strings.Count(got, "missing: it") != mostProblems ||
		!strings.HasSuffix(got, "; and 25 more") {
		t.Errorf("got %q", got)
	}
}
