package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

const (
	// passTimeout is far more than a node's pods take, of which each needs some milliseconds.
	passTimeout = 2 * time.Minute
	// parallel is how many namespaces of usual pods are looked into at once, each by a thread of
	// its own. Of the dearest pods it is one: each may take as much memory as the agent has to
	// spare.
	parallel = 4
)

// Repairer makes passes.
type Repairer struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	turn    chan struct{} // holds one: a pass is on
	soon    chan struct{} // holds one: a look is asked for

	// The pass's own.
	last   map[types.UID]Finding
	pauses pauses
}

// New returns a Repairer. It does nothing before Pass is called.
func New(cfg Config, deps Deps) *Repairer {
	if deps.Locks == nil {
		deps.Locks = &podns.Locks{}
	}
	return &Repairer{cfg: cfg, deps: deps, metrics: newMetrics(deps.Registry),
		turn: make(chan struct{}, 1), soon: make(chan struct{}, 1), pauses: pauses{}}
}

// Pass looks at every pod once and acts. Passes that are asked for at the same time follow one
// another. An error is about the pass as a whole, beside what it did find; what is wrong with a pod
// is in its Result.
func (r *Repairer) Pass(ctx context.Context) (Summary, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return Summary{}, fmt.Errorf("wait for another pass: %w", ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	began := time.Now()
	summary, err := r.pass(ctx)
	r.metrics.finish(summary, err)
	r.log(summary, time.Since(began))
	r.remember(summary)
	return summary, err
}

func (r *Repairer) pass(ctx context.Context) (Summary, error) {
	records, err := r.cfg.Records.Heads()
	errs := []error{err} // about some records: the others count
	host, err := podns.FindHost(r.cfg.HostProc, "the agent")
	errs = append(errs, err)
	var summary Summary
	if r.cfg.Mode != Off && err == nil {
		pods := r.deps.Pods()
		summary.Results = r.examineAll(ctx, search{records,
			audit.NewSearch(host, r.cfg.HostProc, uids(pods))}, pods)
		r.act(ctx, pods, summary.Results)
	}
	summary.Dropped, err = r.dropRecords(records)
	errs = append(errs, err)
	if ctx.Err() != nil {
		errs = append(errs, fmt.Errorf("look at %d pods: %w", len(summary.Results), ctx.Err()))
	}
	return summary, errors.Join(errs...)
}

// A search is for the namespaces of a pass.
type search struct {
	records []record.Record // without their policies
	netns   *audit.Search
}

func uids(pods []*corev1.Pod) []string {
	all := make([]string, len(pods))
	for i, pod := range pods {
		all[i] = string(pod.UID)
	}
	return all
}

// examineAll looks into the namespaces, some at a time, and returns what it found by namespace and
// name. What a pod asks for may be large, so that is read when its turn comes, and forgotten with
// it.
func (r *Repairer) examineAll(ctx context.Context, s search, pods []*corev1.Pod) []Result {
	type candidate struct {
		pod    *corev1.Pod
		weight int64
	}
	var candidates []candidate
	for _, pod := range pods {
		if one := r.subject(pod, s.records); one != nil {
			candidates = append(candidates, candidate{pod, one.weight()})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace),
			cmp.Compare(a.pod.Name, b.pod.Name))
	})
	results := make([]Result, len(candidates))
	room := semaphore.NewWeighted(redirect.MaxRules)
	var group sync.WaitGroup
	for i, c := range candidates {
		// Without a deadline Acquire does not fail.
		_ = room.Acquire(context.WithoutCancel(ctx), c.weight)
		group.Go(func() {
			defer room.Release(c.weight)
			results[i] = r.examine(ctx, s.netns, r.subject(c.pod, s.records))
		})
	}
	group.Wait()
	return results
}

// weight is what a pod takes of the room that all have together, by the rules that are written or
// compared.
func (s *subject) weight() int64 {
	size := redirect.Compile(s.known.Policy).Size()
	for _, one := range s.known.Records {
		size = max(size, redirect.Compile(one.Policy).Size())
	}
	return int64(min(max(size, redirect.MaxRules/parallel), redirect.MaxRules))
}

// log writes a line for each pod that is not what it was, and one for the pass if there is any or
// it did something.
func (r *Repairer) log(s Summary, took time.Duration) {
	changed := 0
	for i := range s.Results {
		one := &s.Results[i]
		before, known := r.last[one.UID]
		if before == one.now() || !known && one.now() == Redirected && one.Outcome == "" {
			continue
		}
		changed++
		r.deps.Log.Info("looked at pod", one.fields()...)
	}
	if changed > 0 || s.Dropped > 0 {
		r.deps.Log.Info("checked pods", zap.Int("pods", len(s.Results)),
			zap.Int("changed", changed),
			zap.Int("dropped", s.Dropped), zap.Duration("took", took))
	}
}

func (x *Result) fields() []zap.Field {
	fields := []zap.Field{zap.String("pod", x.Namespace+"/"+x.Name),
		zap.String("finding", string(x.Finding))}
	if x.Netns.Path != "" {
		fields = append(fields, zap.String("netns", x.Netns.Path))
	}
	if x.Outcome != "" {
		fields = append(fields, zap.String("outcome", string(x.Outcome)))
	}
	if x.Why != "" {
		fields = append(fields, zap.String("reason", x.Why))
	}
	if len(x.Problems) > 0 {
		fields = append(fields, zap.Stringers("problems", x.Problems))
	}
	if x.Err != nil {
		fields = append(fields, zap.Error(x.Err))
	}
	return fields
}

func (r *Repairer) remember(s Summary) {
	r.last = map[types.UID]Finding{}
	for i := range s.Results {
		one := &s.Results[i]
		r.last[one.UID] = one.now()
	}
	r.pauses.keep(r.last)
}
