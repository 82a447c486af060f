package repair

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/inspect"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// examine looks at a pod and, in mode repair, mends it: while its namespace is open.
func (r *Repairer) examine(ctx context.Context, s search, one *subject) Result {
	switch {
	case one.skip != "":
		why := "it has a sidecar, and sidecar-cni leaves it alone: " + one.skip.String()
		result := one.result(Skipped, why)
		result.Skip = one.skip
		return result
	case one.excluded:
		return one.result(Excluded, "it has a sidecar, and its namespace is one that sidecar-cni "+
			"leaves alone: nothing redirects its traffic to the sidecar")
	case one.undecided:
		return one.result(Unreachable, fmt.Sprintf("the handler of its runtime class %q is not "+
			"known: it may have a kernel of its own",
			*one.pod.Spec.RuntimeClassName))
	case !hasAddress(one.pod) && !r.deps.NetworkFirst():
		return one.result(Starting, noAddress)
	case ctx.Err() != nil:
		return one.result(Unreachable, "nobody looked: "+ctx.Err().Error())
	}
	at, err := s.find(one)
	switch {
	case err != nil && !hasAddress(one.pod):
		return one.result(Starting, noAddress)
	case err != nil:
		return one.result(Unreachable, "its network namespace was not found: "+oneLine(err))
	}
	defer at.ns.Close()
	unlock, err := r.deps.Locks.Lock(ctx, at.ns.ID)
	if err != nil {
		return one.result(Unreachable, "nobody looked: "+err.Error())
	}
	defer unlock()
	result := r.judge(ctx, at, one)
	result.Netns = at.netns
	switch {
	case result.Finding == Missing && at.record == nil && at.age < addTimeout &&
		!r.deps.NetworkFirst():
		// The address that the API server has may be that of the sandbox before.
		return one.result(Starting, "its sandbox has just been started, and its network may "+
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

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// judge reads the rules in a pod's namespace. Ours are compared with what the record says, else
// with what the pod asks for now.
func (r *Repairer) judge(ctx context.Context, at *place, one *subject) Result {
	var chains inspect.Chains
	err := at.within(podns.Apart, func() (err error) {
		chains, err = inspect.Read(r.proxyOf(at, one))
		return err
	})
	redirections := chains.Redirections()
	others := slices.DeleteFunc(slices.Clone(redirections),
		func(s inspect.Redirection) bool { return s.Ours })
	switch {
	case err != nil:
		return one.result(Unreachable, "its rules were not read: "+oneLine(err))
	case len(redirections) == 0:
		return one.result(Missing, "no rule in its network namespace redirects to the sidecar")
	case len(others) > 0 && at.record != nil:
		return one.altered("rules of another tool redirect it, beside what was recorded",
			unexpected(others))
	case len(others) > 0:
		return one.result(Foreign,
			"rules of another tool redirect it, the first in "+others[0].Where)
	}
	result := r.compare(ctx, at, one,
		"rules of sidecar-cni redirect it, the first in "+redirections[0].Where)
	result.Unhit = result.Finding == Redirected && at.record != nil && chains.Unhit() &&
		r.age(at.record.Attachment) >= settled
	return result
}

// settled is how old a record has to be for its pod to be among those whose rules should have met
// a packet.
const settled = 10 * time.Minute

// compare looks whether the rules, which are ours, are what they should be. The words are said of
// rules that cannot be compared.
func (r *Repairer) compare(ctx context.Context, at *place, one *subject, words string) Result {
	if at.record == nil {
		at.record = r.recordIn(at.ns.ID)
	}
	if at.record == nil && one.mistake != nil {
		return one.result(Foreign, words)
	}
	policy, name := one.policy, backend.For(r.deps.Backend(), at.ns)
	if at.record != nil {
		policy, name = at.record.Policy, at.record.Backend
	}
	rules := redirect.Compile(policy)
	if at.record != nil && at.record.Revision != record.Revision(rules) {
		return one.result(Foreign, "another version of sidecar-cni programmed it: only that one "+
			"knows what its rules should be")
	}
	problems, err := r.verify(ctx, at, task{name, rules})
	var lacking *lackingError
	switch {
	case errors.As(err, &lacking):
		return one.result(Foreign,
			fmt.Sprintf("%s: they cannot be compared: %s", words, oneLine(err)))
	case err != nil:
		return one.result(Unreachable, "its rules were not read: "+oneLine(err))
	case len(problems) == 0:
		return one.result(Redirected, "")
	case at.record == nil:
		return one.result(Foreign, words+", and no record says what it should be")
	}
	return one.altered("its rules are not those that were recorded", problems)
}

// proxyOf is where traffic of the pod has to end: on the ports that were recorded, else on those
// of the configuration.
func (r *Repairer) proxyOf(at *place, one *subject) inspect.Proxy {
	ports := r.cfg.Redirect.Ports
	if at.record != nil {
		ports = at.record.Policy.Ports
	}
	p := inspect.Proxy{Ports: []uint16{ports.Outbound, ports.Inbound, ports.DNS}}
	for _, ip := range one.pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			p.Addrs = append(p.Addrs, addr)
		}
	}
	return p
}

// unexpected names another tool's chains as differences from what was recorded.
func unexpected(others []inspect.Redirection) []redirect.Problem {
	problems := make([]redirect.Problem, len(others))
	for i, s := range others {
		problems[i] = redirect.Problem{
			Where: s.Where, What: "unexpected: it redirects to the sidecar, and is not ours",
		}
	}
	return problems
}

// A task is what to do in a namespace.
type task struct {
	backend string
	rules   redirect.Ruleset
}

// A lackingError is about programs that are not here.
type lackingError struct{ error }

func (e *lackingError) Unwrap() error { return e.error }

// with calls do with the backend in the pod's namespace.
func (r *Repairer) with(at *place, t task, do func(backend.Backend) error) error {
	if t.backend == "" {
		return &lackingError{errors.New("find backend: none works on this node yet, the agent's " +
			"/readyz says why")}
	}
	thread := podns.Apart
	if r.cfg.InRoot != nil && backend.RunsPrograms(t.backend) {
		thread = r.cfg.InRoot
	}
	return at.within(thread, func() error {
		found, err := backend.Find(t.backend)
		if err != nil {
			return &lackingError{err}
		}
		return do(found)
	})
}

func (r *Repairer) verify(ctx context.Context, at *place,
	t task) (problems []redirect.Problem, err error) {
	err = r.with(at, t, func(b backend.Backend) (err error) {
		problems, err = b.Verify(ctx, t.rules)
		return err
	})
	return problems, err
}
