package repair

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// Finding is what a pod turned out to be.
type Finding = audit.Finding

// The findings, which are those of package audit.
const (
	Redirected  = audit.Redirected
	Missing     = audit.Missing
	Altered     = audit.Altered
	Foreign     = audit.Foreign
	Excluded    = audit.Excluded
	Skipped     = audit.Skipped
	Starting    = audit.Starting
	Unreachable = audit.Unreachable
)

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
