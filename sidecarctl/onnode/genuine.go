package onnode

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// Labels select the agents' pods, whatever release they are of. Anybody can set them on a pod of
// his own, see Genuine.
const Labels = "app.kubernetes.io/name=sidecar-cni,app.kubernetes.io/component=agent"

// Volumes are a pod's.
type Volumes []struct {
	HostPath struct {
		Path string `json:"path"`
	} `json:"hostPath"`
}

// OfAgent reports whether the run directory of the node is among them: whoever may mount that is
// root there anyway.
func (v Volumes) OfAgent() bool {
	for _, one := range v {
		if one.HostPath.Path == names.RunDir {
			return true
		}
	}
	return false
}

// A Claim is what a pod with Labels says of itself.
type Claim struct {
	Namespace string    // that it is in
	Volumes   Volumes   // of its spec
	Ready     bool      // its condition is
	Leaving   bool      // it has been deleted, and has not ended
	Created   time.Time // by the API server
}

// Genuine returns those of pods with Labels that are agents, in the order in which those of a node
// are to be asked: those that are ready first, and of these the newest, which is in charge of the
// node while an update replaces the other. There is one installation: what has agents in two
// namespaces is an error.
func Genuine[P any](labelled []P, claim func(P) Claim) ([]P, error) {
	var agents []P
	for _, p := range labelled {
		if claim(p).Volumes.OfAgent() {
			agents = append(agents, p)
		}
	}
	for _, p := range agents {
		if first, other := claim(agents[0]).Namespace, claim(p).Namespace; other != first {
			return nil, fmt.Errorf("pods of namespaces %s and %s are labelled as agents: name the "+
				"one where sidecar-cni is installed by --agent-namespace", first, other)
		}
	}
	slices.SortStableFunc(agents, func(p, q P) int { return claim(p).compare(claim(q)) })
	return agents, nil
}

func (c Claim) compare(d Claim) int {
	last := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	return cmp.Or(last(c.Leaving)-last(d.Leaving), last(!c.Ready)-last(!d.Ready),
		d.Created.Compare(c.Created))
}
