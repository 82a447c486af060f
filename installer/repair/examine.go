package repair

import (
	"context"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

// examine looks at a pod and, in mode repair, mends it: while its namespace is open.
func (r *Repairer) examine(ctx context.Context, s *audit.Search, one *subject) Result {
	switch {
	case one.judged != nil:
		return one.result(*one.judged)
	case !hasAddress(one.pod) && !r.deps.NetworkFirst():
		return one.found(Starting, noAddress)
	case ctx.Err() != nil:
		return one.found(Unreachable, "nobody looked: "+ctx.Err().Error())
	}
	at, err := s.Find(one.known)
	switch {
	case err != nil && !hasAddress(one.pod):
		return one.found(Starting, noAddress)
	case err != nil:
		return one.found(Unreachable, "its network namespace was not found: "+oneLine(err))
	}
	defer at.Close()
	unlock, err := r.deps.Locks.Lock(ctx, at.NS.ID)
	if err != nil {
		return one.found(Unreachable, "nobody looked: "+err.Error())
	}
	defer unlock()
	result := one.result(r.auditor().Judge(ctx, at, one.known))
	result.Netns = at.Netns
	switch {
	case result.Finding == Missing && at.Record == nil && at.Age < addTimeout &&
		!r.deps.NetworkFirst():
		// The address that the API server has may be that of the sandbox before.
		return one.found(Starting, "its sandbox has just been started, and its network may "+
			"still be set up")
	case result.Finding == Missing && r.cfg.Mode == Repair && !r.deps.Hold():
		result.Outcome = Repaired
		if err := r.mend(ctx, s, at, one); err != nil {
			result.Outcome, result.Err = Failed, err
		}
	}
	return result
}

const noAddress = "it has no address yet"

// addTimeout is as long as an ADD can be under way: the longest deadline that the plugin takes.
const addTimeout = 2 * time.Minute

// auditor judges by what is configured by now.
func (r *Repairer) auditor() audit.Auditor {
	return audit.Auditor{Records: r.cfg.Records, Ports: r.cfg.Redirect.Ports,
		Backend: r.deps.Backend(), InRoot: r.cfg.InRoot}
}
