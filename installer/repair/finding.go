package repair

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Finding is what a pod turned out to be.
type Finding string

// The findings, a closed list.
const (
	Redirected Finding = "redirected" // its rules are those that were recorded
	Missing    Finding = "missing"    // nothing redirects anything to its proxy
	Altered    Finding = "altered"    // its rules are not those that were recorded
	// programmed by another: a tool, a revision of ours, a backend
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
	Foreign:    "another tool, another version of the plugin or another backend redirects it",
	Excluded:   "it has a sidecar and its namespace is excluded: nothing redirects it",
	Skipped: "it has a sidecar, no istio-init, and is left alone for another reason, which " +
		"`sidecar_cni_skipped_pods` names by the words of " +
		"[annotations.md](annotations.md): nothing " +
		"redirects it; there is no Event",
	Starting: "it has no address yet, or its network may still be set up: it is looked at " +
		"again within seconds",
	Unreachable: "its network namespace was not found, or cannot be read",
}

// Outcome is what was done about a pod that is Missing.
type Outcome string

// The outcomes, a closed list. Reported is all that is done in mode report.
const (
	Reported Outcome = "reported"
	Repaired Outcome = "repaired" // and the rules were read back
	Evicted  Outcome = "evicted"
	Deferred Outcome = "deferred" // a PodDisruptionBudget forbids to evict it now
	Spared   Outcome = "spared"   // it is not one to evict
	Failed   Outcome = "failed"
)

// Outcomes lists them.
var Outcomes = []Outcome{Reported, Repaired, Evicted, Deferred, Spared, Failed}

// Result is a pod and what was found.
type Result struct {
	// The pod.
	Namespace, Name string
	UID             types.UID

	Finding  Finding            // what it was before anything was done about it
	Why      string             // a sentence; of Redirected it may be empty
	Skip     redirect.Skip      // of Skipped
	Problems []redirect.Problem // of Altered, the first ones
	Differ   int                // how many there are of them
	Unhit    bool               // of Redirected: for 10 minutes or longer no packet has met a rule
	Netns    record.Netns       // zero if none was found
	Outcome  Outcome            // of Missing
	Err      error              // of Failed
}

// Summary is what a pass came to.
type Summary struct {
	Results []Result // of the pods that are ours, by namespace and name
	Dropped int      // records of namespaces that are gone
}

// now is what the pod is once all was done.
func (x *Result) now() Finding {
	if x.Outcome == Repaired {
		return Redirected
	}
	return x.Finding
}
