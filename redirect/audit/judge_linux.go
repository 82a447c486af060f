package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/inspect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Pod is what is known of a pod without looking into its network namespace.
type Pod struct {
	UID     string          // of its object, which its processes' cgroups carry
	Addrs   []netip.Addr    // its own; none if they are not known yet
	Records []record.Record // those that name its uid, from RecordsOf
	Policy  redirect.Policy // what it asks for now, from Expect
	Mistake error           // why Policy is not known; nil if it is
}

// Auditor judges what is in the network namespaces of pods.
type Auditor struct {
	Records record.Dir      // the plugin's
	Ports   redirect.Listen // of the plugin's configuration, for pods without a record
	Backend string          // of the plugin's configuration; "" if none works, or nobody knows it

	// InRoot calls a function where iptables' programs are, on a thread that is its own. Nil: here.
	InRoot func(do func() error) error
}

// settled is how old a record has to be for its pod to be among those whose rules should have met
// a packet.
const settled = 10 * time.Minute

// Judge reads the rules in a pod's namespace. Ours are compared with what the record says, else
// with what the pod asks for now, in the backend that has them.
func (a Auditor) Judge(ctx context.Context, at *Place, pod Pod) Judgement {
	ports := a.Ports
	if at.Record != nil {
		ports = at.Record.Policy.Ports
	}
	chains, err := Read(at.NS, ports, pod.Addrs)
	redirections := chains.Redirections()
	others := slices.DeleteFunc(slices.Clone(redirections),
		func(s inspect.Redirection) bool { return s.Ours })
	switch {
	case err != nil:
		return unread(withStack(err))
	case len(redirections) == 0:
		return Judgement{Finding: Missing,
			Why: "no rule in its network namespace redirects to the sidecar"}
	case len(others) > 0 && at.Record != nil:
		return differing(Altered, "rules of another tool redirect it, beside what was "+
			"recorded", unexpected(others))
	case len(others) > 0:
		return Judgement{Finding: Foreign,
			Why: "rules of another tool redirect it, the first in " + others[0].Where}
	}
	known := at.Record
	if known == nil {
		known = RecordIn(a.Records, at.NS.ID) // of an ADD that has ended meanwhile
	}
	j := a.compare(ctx, comparison{at: at, pod: pod, record: known, ours: redirections})
	j.Unhit = j.Finding == Redirected && known != nil && chains.Unhit() &&
		a.Records.Age(known.Attachment) >= settled
	return j
}

func unread(err error) Judgement {
	return Judgement{Finding: Unreachable, Why: "its rules were not read: " + oneLine(err)}
}

// Read reads the chains in a pod's network namespace, on a thread of its own, and tells those that
// lead to the ports of its proxy.
func Read(n *podns.Namespace, ports redirect.Listen, addrs []netip.Addr) (inspect.Chains, error) {
	to := inspect.Proxy{Ports: []uint16{ports.Outbound, ports.Inbound, ports.DNS}, Addrs: addrs}
	var chains inspect.Chains
	err := n.DoOn(podns.Apart, func() (err error) {
		chains, err = inspect.Read(to)
		return err
	})
	return chains, err
}

// A comparison is of rules that are ours.
type comparison struct {
	at     *Place
	pod    Pod
	record *record.Record        // the one about the namespace; nil without
	ours   []inspect.Redirection // at least one
}

// words say it of rules that cannot be compared.
func (c comparison) words() string {
	return "rules of sidecar-cni redirect it, the first in " + c.ours[0].Where
}

// compare looks whether the rules, which are ours, are what they should be.
func (a Auditor) compare(ctx context.Context, c comparison) Judgement {
	policy, name, doubt := c.pod.Policy, c.ours[0].Backend, a.doubt(c)
	switch {
	case c.record != nil:
		policy, name = c.record.Policy, c.record.Backend
	case c.pod.Mistake != nil:
		return Judgement{Finding: Foreign, Why: c.words()}
	case doubt != "":
		return Judgement{Finding: Foreign, Why: c.words() + doubt}
	}
	rules := redirect.Compile(policy)
	if c.record != nil && c.record.Revision != record.Revision(rules) {
		return Judgement{Finding: Foreign, Why: "another version of sidecar-cni programmed it: " +
			"only that one knows what its rules should be"}
	}
	var problems []redirect.Problem
	err := a.With(c.at, name, func(b backend.Backend) (err error) {
		problems, err = b.Verify(ctx, rules)
		return err
	})
	var lacking *lackingError
	switch {
	case errors.As(err, &lacking):
		return Judgement{Finding: Foreign,
			Why: fmt.Sprintf("%s: they cannot be compared: %s", c.words(), oneLine(err))}
	case err != nil:
		return unread(err)
	case len(problems) == 0:
		return Judgement{Finding: Redirected}
	case c.record == nil:
		return differing(Foreign, "its rules are not what the pod asks for, and no record says "+
			"what they should be", problems)
	}
	return differing(Altered, "its rules are not those that were recorded", problems)
}

// doubt says why nobody knows, without a record, which backend should have the rules; "" if it is
// the one that has them.
func (a Auditor) doubt(c comparison) string {
	name := c.ours[0].Backend
	for _, one := range c.ours {
		if one.Backend != name {
			return fmt.Sprintf(": they are in %s and in %s, and no record says which are left over",
				name, one.Backend)
		}
	}
	if a.Backend == "" || backend.For(a.Backend, c.at.NS) == name {
		return ""
	}
	return fmt.Sprintf(": they are in %s, the configuration says %s, and no record says what it "+
		"should be", name, a.Backend)
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

// A lackingError is about programs that are not here.
type lackingError struct{ error }

func (e *lackingError) Unwrap() error { return e.error }

// With calls do with a backend, by its name, in a pod's namespace.
func (a Auditor) With(at *Place, name string, do func(backend.Backend) error) error {
	if name == "" {
		return &lackingError{errors.New("find backend: none works on this node yet, the agent's " +
			"/readyz says why")}
	}
	thread := podns.Apart
	if a.InRoot != nil && backend.RunsPrograms(name) {
		thread = a.InRoot
	}
	return withStack(at.NS.DoOn(thread, func() error {
		found, err := backend.Find(name)
		if err != nil {
			return &lackingError{err}
		}
		return do(found)
	}))
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
