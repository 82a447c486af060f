package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// A moment is when a sandbox is decided, as a word for metrics.
type moment string

const (
	atStart     moment = "start"     // its network was set up, and it has no container
	atConnect   moment = "connect"   // it was there when the guard connected
	atContainer moment = "container" // it was not decided then, and gets its first container
)

var moments = []moment{atStart, atConnect, atContainer}

// An outcome is what becomes of a sandbox, as a word for metrics.
type outcome string

const (
	skipped    outcome = "skipped"    // it is not ours
	recorded   outcome = "recorded"   // ADD has redirected it, or the guard before
	foreign    outcome = "foreign"    // another tool redirects it
	redirected outcome = "redirected" // the guard has redirected it
	refused    outcome = "refused"
	open       outcome = "open"      // it runs, and nobody redirects it
	undecided  outcome = "undecided" // it was there when the guard connected, and was not decided
	passed     outcome = "passed"    // this agent is not in charge
)

var outcomes = []outcome{
	skipped, recorded, foreign, redirected, refused, open, undecided, passed,
}

// A verdict is the decision about a sandbox.
type verdict struct {
	outcome  outcome
	reason   string   // of skipped and foreign; of undecided, what kept it from a decision
	warnings []string // for whoever reads the log
	notices  []string // for whoever runs the pod
	err      error    // of refused
}

// decideWithin decides about a sandbox. What takes longer than the limit is refused.
func (g *Guard) decideWithin(ctx context.Context, limit time.Duration, one sandbox,
	is condition) verdict {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	late := refusedFor(fmt.Errorf("nothing was decided within %v", limit), tooSlow)
	if ctx.Err() != nil {
		return late
	}
	done := make(chan verdict, 1)
	go func() {
		var v verdict
		err := podns.Guard(func() error { v = g.decide(ctx, one, is); return nil })
		if err != nil {
			v = refusedBy(err)
		}
		done <- v
	}()
	select {
	case v := <-done:
		return v
	case <-ctx.Done(): // the kernel may hold up who is in it
		return late
	}
}

// remember keeps what became of the sandboxes, so that the log names each once, however often the
// guard connects.
func (g *Guard) remember(sandboxes []sandbox, verdicts []verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = map[string]outcome{}
	for i, one := range sandboxes {
		g.known[one.id] = verdicts[i].outcome
	}
}

// A condition is what is known of a sandbox beside what the runtime says of the pod.
type condition int

const (
	isNew condition = iota // its network was just set up
	idles                  // it was there when the guard connected, and nothing runs in it
	runs                   // it was there, and something runs in it
)

// parallel is how many sandboxes are decided at once that are told at connecting.
const parallel = 4

// catchUp decides about the sandboxes that there are, within the limit. It returns those in which
// nothing runs and that were not decided. Those that run open are left to package repair.
func (g *Guard) catchUp(ctx context.Context, limit time.Duration, all told) map[string]sandbox {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	verdicts := make([]verdict, len(all.sandboxes))
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, is := range []condition{idles, runs} { // first those that can still be mended in time
		for i, one := range all.sandboxes {
			if all.running[one.id] != (is == runs) {
				continue
			}
			group.Go(func() error {
				began := time.Now()
				v := g.decideWithin(ctx, limit, one, is)
				if v.outcome == refused { // it is there: at most its containers can be refused
					v.outcome, v.reason, v.err = undecided, v.err.Error(), nil
				}
				g.report(one, atConnect, v, time.Since(began))
				verdicts[i] = v
				return nil
			})
		}
	}
	_ = group.Wait() // what goes wrong is a verdict
	g.remember(all.sandboxes, verdicts)
	left, unsettled := map[string]sandbox{}, false
	for i, one := range all.sandboxes {
		what := verdicts[i].outcome
		unsettled = unsettled || what == open || what == undecided
		if what == undecided && !all.running[one.id] {
			left[one.id] = one
		}
	}
	if unsettled {
		g.deps.Repair()
	}
	return left
}

// decide decides about a sandbox. Where something runs, nothing is written.
func (g *Guard) decide(ctx context.Context, one sandbox, is condition) verdict {
	if !g.deps.InCharge() {
		return verdict{outcome: passed}
	}
	d, err := redirect.Decide(one.pod, g.cfg.Redirect)
	switch {
	case err == nil && d.Skip != "":
		return verdict{outcome: skipped, reason: string(d.Skip)}
	case one.netns == "" && one.told:
		return verdict{outcome: skipped, reason: "host_network"}
	case one.netns == "" && is != isNew:
		return verdict{outcome: skipped, reason: "gone"} // it has ended
	case one.netns == "":
		return g.withoutNamespace(ctx, one)
	}
	n, err := g.enter(one)
	if errors.Is(err, fs.ErrNotExist) && is != isNew && isDir(filepath.Dir(one.netns)) {
		return verdict{outcome: skipped, reason: "gone"}
	}
	if err != nil {
		return refusedFor(err, badNamespace)
	}
	defer n.Close()
	unlock, err := g.deps.Locks.Lock(ctx, n.ID)
	if err != nil {
		return refusedFor(err, tooSlow)
	}
	defer unlock()
	if g.recorded(one, n, is == runs || is == idles && g.cfg.Mode == Refuse) {
		return verdict{outcome: recorded}
	}
	v, unrecorded := g.look(n, one)
	if v.outcome != "" {
		return v
	}
	v, mine := g.identify(ctx, one)
	switch {
	case v.outcome != "":
		return v
	case is == runs && unrecorded:
		return refusedFor(errors.New("rules of sidecar-cni redirect it, and no record says "+
			"what they should be"), badState)
	case is == runs:
		return verdict{outcome: open}
	case g.cfg.Mode == Refuse && is == idles:
		return refusedFor(errNotRedirected, anew) // no ADD will be called for this sandbox
	case g.cfg.Mode == Refuse:
		return refusedFor(errNotRedirected, notRedirected)
	}
	return g.redirect(ctx, n, one, mine)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

var errNotRedirected = errors.New("nobody redirected it when its network was set up")

// enter opens the network namespace of a sandbox.
func (g *Guard) enter(one sandbox) (*podns.Namespace, error) {
	host, err := podns.FindHost(g.cfg.HostProc, "the agent")
	if err != nil {
		return nil, err
	}
	return host.Open(one.netns)
}

// withoutNamespace decides about a new sandbox of which the runtime tells no namespaces, as of one
// that is no container.
func (g *Guard) withoutNamespace(ctx context.Context, one sandbox) verdict {
	found := g.deps.Find(ctx, agent.Ref{Namespace: one.pod.Namespace, Name: one.pod.Name,
		UID: types.UID(one.uid)})
	if found.Verdict == agent.Found && found.Pod.Spec.HostNetwork {
		return verdict{outcome: skipped, reason: "host_network"}
	}
	v, _ := g.identify(ctx, one)
	if v.outcome != "" {
		return v
	}
	return refusedFor(errors.New("the runtime does not tell its network namespace"), badNamespace)
}

// recorded reports whether there is a record of a sandbox that is about this very namespace. That
// of a repair, which knows no sandbox's id, counts where nothing would be written in its place.
func (g *Guard) recorded(one sandbox, n *podns.Namespace, repaired bool) bool {
	records := g.cfg.Records.OfContainer(one.id)
	if repaired {
		// It may be about the sandbox before, and the kernel uses inodes again.
		r, err := g.cfg.Records.Read(record.StandIn(one.uid))
		if err == nil && g.leadsTo(r.Netns.Path, n.ID) {
			records = append(records, r)
		}
	}
	for _, r := range records {
		if audit.IDOf(r.Netns) == n.ID {
			return true
		}
	}
	return false
}

// leadsTo reports whether a path of a record still leads to a namespace.
func (g *Guard) leadsTo(path string, to podns.ID) bool {
	if in, ok := strings.CutPrefix(path, "/proc/"); ok {
		path = filepath.Join(g.cfg.HostProc, in)
	}
	id, err := podns.Identify(path)
	return err == nil && id == to
}

// look returns a verdict if another tool redirects the pod, and reports whether rules of ours do.
// Those are without a record, and are written anew: whoever wrote them did not come to the end.
func (g *Guard) look(n *podns.Namespace, one sandbox) (v verdict, unrecorded bool) {
	chains, err := audit.Read(n, g.cfg.Redirect.Ports, one.addrs)
	if err != nil {
		return refusedFor(fmt.Errorf("read its rules: %w", err), unread), false
	}
	for _, r := range chains.Redirections() {
		if !r.Ours {
			return verdict{outcome: foreign, reason: r.Where}, unrecorded
		}
		unrecorded = true
	}
	return verdict{}, unrecorded
}

// ours is what a pod asks for that is ours.
type ours struct {
	policy   redirect.Policy
	uid      string   // of the pod's object
	warnings []string // for whoever reads the log
	notices  []string // for whoever runs the pod
}

// identify decides by the whole pod. Without a verdict the pod is ours.
func (g *Guard) identify(ctx context.Context, one sandbox) (verdict, ours) {
	found := g.deps.Find(ctx, agent.Ref{Namespace: one.pod.Namespace, Name: one.pod.Name,
		UID: types.UID(one.uid)})
	switch found.Verdict {
	case agent.Found:
	case agent.Absent, agent.OtherUID:
		return refusedFor(errors.New("there is no such pod any more, or another under its name"),
			podGone), ours{}
	case agent.Unknown:
		return refusedFor(fmt.Errorf("what the pod is was not found out: %s", found.Why),
			noSource), ours{}
	}
	known := one.pod
	known.Nameservers = g.nameservers(one)
	pod := known.Complete(agent.Describe(found.Pod).Facts())
	pod.Spec.RuntimeHandler = one.handler
	if one.handler == "" && pod.Spec.RuntimeClass != "" {
		pod.Spec.RuntimeHandler = g.deps.Handler(pod.Spec.RuntimeClass)
	}
	d, err := redirect.Decide(pod, g.cfg.Redirect)
	switch {
	case err != nil:
		return refusedBy(err), ours{}
	case d.AskHandler:
		return refusedFor(fmt.Errorf("the handler of its runtime class %q is not known",
			pod.Spec.RuntimeClass), noSource), ours{}
	case d.AskMore:
		return refusedFor(errors.New("only a part of the pod is known"), noSource), ours{}
	case d.Skip != "":
		return verdict{outcome: skipped, reason: string(d.Skip), notices: d.Notices}, ours{}
	}
	return verdict{}, ours{d.Policy, string(found.Pod.UID), d.Warnings, d.Notices}
}
