package verify

import (
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// mostProblems is how many differences are named of a pod.
const mostProblems = 5

// remedies are what to do about what the rules of a pod are.
var remedies = map[audit.Finding]string{
	audit.Missing: "delete the pod to have it created anew; with repair.mode=repair the agent " +
		"redirects such pods itself",
	audit.Altered: "find out who changes them, and delete the pod to have it created anew",
	audit.Excluded: "move the pod, or take the namespace off the list of excluded ones, if this " +
		"is not meant",
	audit.Skipped:  "see sidecarctl explain, if this is not meant",
	audit.Foreign:  "delete the pod to have it created anew, if its rules are to be recorded ones",
	audit.Starting: "ask again once the pod has an address",
}

// ofRules are the findings about what the rules of a pod are.
func ofRules(j audit.Judgement) []Finding {
	f := Finding{Kind: AboutRules, What: j.Why, Remedy: remedies[j.Finding]}
	switch j.Finding {
	case audit.Redirected:
		if !j.Unhit {
			return nil
		}
		f.What = "for 10 minutes or longer no packet has met a rule"
		f.Remedy = "none if the pod has no traffic; a pod with a kernel of its own never meets " +
			"them, and has to leave the mesh"
	case audit.Missing:
		f.Wrong, f.What = true, j.Why+": its traffic goes past the sidecar"
	case audit.Altered:
		f.Wrong, f.What = true, fmt.Sprintf("%s: %d differ: %s", j.Why, j.Differ, problems(j))
	case audit.Unreachable:
		f.Wrong, f.Kind = true, AboutNamespace
	case audit.Foreign:
		if j.Differ > 0 {
			f.Wrong, f.What = true, fmt.Sprintf("%s: %d differ: %s", j.Why, j.Differ, problems(j))
			f.Remedy = "see whether the pod and the configuration (--entry) are those that it " +
				"was redirected by; else find out who changes its rules, and have it created anew"
		}
	case audit.Excluded, audit.Skipped, audit.Starting:
	}
	return []Finding{f}
}

// problems names the first ones.
func problems(j audit.Judgement) string {
	var texts []string
	for _, one := range j.Problems[:min(len(j.Problems), mostProblems)] {
		texts = append(texts, one.String())
	}
	if j.Differ > len(texts) {
		texts = append(texts, fmt.Sprintf("and %d more", j.Differ-len(texts)))
	}
	return strings.Join(texts, "; ")
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
