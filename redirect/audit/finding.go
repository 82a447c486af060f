package audit

import (
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Finding is what a pod turned out to be.
type Finding string

// The findings, a closed list.
const (
	Redirected Finding = "redirected" // its rules are those that were recorded
	Missing    Finding = "missing"    // nothing redirects anything to its proxy
	Altered    Finding = "altered"    // its rules are not those that were recorded
	// programmed by another: a tool, a revision of ours, a backend; or not as the pod asks for, and
	// no record says what was programmed
	Foreign Finding = "foreign"
	// it has a sidecar and its namespace is excluded: it is open
	Excluded Finding = "excluded"
	// it has a sidecar and is left alone, as Skip says: it is open
	Skipped     Finding = "skipped"
	Starting    Finding = "starting"    // its network is not known to be set up
	Unreachable Finding = "unreachable" // its network namespace was not found, or cannot be read
)

// Findings lists them.
var Findings = []Finding{
	Redirected, Missing, Altered, Foreign, Excluded, Skipped, Starting, Unreachable,
}

// Meanings are for the reference page.
var Meanings = map[Finding]string{
	Redirected: "its rules are those that were programmed",
	Missing:    "nothing redirects its traffic to the sidecar: `--repair` says what becomes of it",
	Altered:    "its rules are not those that were recorded, or another tool's redirect it as well",
	Foreign: "another tool, another version of the plugin or another backend redirects it; or " +
		"nobody has recorded what was programmed, and it is not what the pod asks for",
	Excluded: "it has a sidecar and its namespace is excluded: nothing redirects it",
	Skipped: "it has a sidecar, no istio-init, and is left alone for another reason, which " +
		"`sidecar_cni_skipped_pods` names by the words of " +
		"[annotations.md](annotations.md): nothing " +
		"redirects it; there is no Event",
	Starting: "it has no address yet, or its network may still be set up: it is looked at " +
		"again within seconds",
	Unreachable: "its network namespace was not found, or cannot be read",
}

// Judgement is what was found of a pod.
type Judgement struct {
	Finding  Finding            `json:"finding"`            // one of those in docs/installer.md
	Why      string             `json:"why,omitempty"`      // a sentence; redirected may have none
	Skip     redirect.Skip      `json:"skip,omitempty"`     // of skipped: the reason
	Problems []redirect.Problem `json:"problems,omitempty"` // of altered and foreign, the first ones
	Differ   int                `json:"differ,omitempty"`   // how many there are of them

	// Of redirected: for 10 minutes or longer no packet has met a rule.
	Unhit bool `json:"unhit,omitempty"`
}

// maxProblems is how many differences are kept of a pod; nobody reads ten thousand.
const maxProblems = 20

// differing is a judgement of rules that were compared.
func differing(f Finding, why string, problems []redirect.Problem) Judgement {
	return Judgement{Finding: f, Why: why, Differ: len(problems),
		Problems: slices.Clone(problems[:min(len(problems), maxProblems)])}
}
