// Package validation tries whether connections in a pod go where its rules lead them, without any
// capability, as the init container istio-validation does.
//
//	report, err := validation.Run(ctx, policy, validation.Options{ProbePort: 15002,
//		Timeout: 5 * time.Second, Nameservers: servers})
//	if report.Failed() { ... }
//
// It takes every path that its own user can take: connections of the pod with itself, those that
// the rules bring to the proxy's outbound port, and questions to nameservers. It listens where they
// should end, and looks who gets them and what they were meant for. What is expected is played by
// the rules that the policy comes to, so it holds for any policy.
//
// Be aware:
//   - What enters the pod from outside is not among the paths, nor is what leaves it. Where a rule
//     is missing, packets leave the pod, at most ten a path or one a second: the path is tried
//     again until the time is up. They live for one hop, so that a neighbour may get them.
//   - It works in the network namespace of the calling thread.
//   - A port on which somebody else listens, such as a proxy that runs already, cannot be tried.
//     Neither can a port below 1024 without the right to listen there.
package validation

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// Options is what the policy does not say.
type Options struct {
	Nameservers []netip.Addr  // of the pod
	ProbePort   uint16        // any port that is free, on which the pod calls itself
	Timeout     time.Duration // for all paths together
}

// Report is what was found.
type Report struct {
	UID uint32 `json:"uid"` // of the user whose paths were tried
	GID uint32 `json:"gid"` // of its group

	Passed   []Path     `json:"passed"`             // that ended where they should
	Wrong    []Path     `json:"failed,omitempty"`   // that did not
	Untried  []Path     `json:"untried,omitempty"`  // that could not be tried
	Untested []Untested `json:"untested,omitempty"` // rules that no tried path depends on
}

// Path is a connection, or a question and its answer.
type Path struct {
	About    string         `json:"about"`          // what it is, in words
	Protocol string         `json:"protocol"`       // TCP or UDP
	From     netip.Addr     `json:"from,omitzero"`  // bound to; not valid: the kernel's choice
	To       netip.AddrPort `json:"to"`             // where it is meant to go
	Want     string         `json:"want,omitempty"` // where it should end
	Seen     string         `json:"seen,omitempty"` // where it ended, or why it was not tried

	tells bool // it would end elsewhere in a pod without any rules
}

func (p Path) String() string {
	from := ""
	if p.From.IsValid() {
		from = fmt.Sprintf(" from %s", p.From)
	}
	return fmt.Sprintf("%s%s to %s, %s", p.Protocol, from, p.To, p.About)
}

// Untested is a rule, an address or a route.
type Untested struct {
	Where string `json:"where"` // of a rule: table, chain and place, counted from 1
	Why   string `json:"why"`   // of a rule: its reason; else what it is
}

// ErrNothing is the error of a pod in which no path can be tried.
var ErrNothing = errors.New("nothing can be tried")

// Failed reports whether the pod is not as it should be. Where nothing could be tried that depends
// on a rule, nobody knows that it is.
func (r Report) Failed() bool { return len(r.Wrong) > 0 || len(r.Passed) == 0 || r.blind() }

// blind reports whether a pod without any rules would have passed as well, and only for what could
// not be tried.
func (r Report) blind() bool {
	tells := func(p Path) bool { return p.tells }
	return !slices.ContainsFunc(slices.Concat(r.Passed, r.Wrong), tells) &&
		slices.ContainsFunc(r.Untried, tells)
}

// Text writes it for people.
func (r Report) Text(p *view.Page) {
	who := fmt.Sprintf("as uid %d and gid %d", r.UID, r.GID)
	switch tried := len(r.Wrong) + len(r.Passed); {
	case tried == 0:
		p.Wrong(0, "no path could be tried "+who)
	case len(r.Wrong) > 0:
		p.Wrong(0, fmt.Sprintf("%d of %d paths tried %s do not end where they should:",
			len(r.Wrong), tried, who))
	case r.blind():
		p.Wrong(0, fmt.Sprintf("all %d paths tried %s end where they would without any rules, "+
			"too; those that would tell could not be tried:", tried, who))
	default:
		p.Paragraph(0, fmt.Sprintf("all %d paths tried %s end where they should:", tried, who))
	}
	for _, one := range r.Wrong {
		p.Wrong(2, one.String())
		p.Paragraph(4, fmt.Sprintf("want %s; seen: %s", one.Want, one.Seen))
	}
	for _, one := range r.Passed {
		p.Paragraph(2, fmt.Sprintf("%s: %s", one, one.Want))
	}
	if len(r.Untried) > 0 {
		p.Odd(0, "could not be tried:")
	}
	for _, one := range r.Untried {
		p.Paragraph(2, fmt.Sprintf("%s: %s", one, one.Seen))
	}
	if len(r.Untested) > 0 {
		p.Paragraph(0, "rules that no tried path depends on:")
	}
	var rows [][]string
	for _, one := range r.Untested {
		rows = append(rows, []string{one.Where, one.Why})
	}
	p.Table(2, rows)
}
