// Package cluster says what the API server alone knows of all nodes: whether an agent is there and
// ready, what it reports of itself, and which pods wait for it.
//
//	report, err := cluster.Look(ctx, client, cluster.Options{})
//	for _, n := range report.Nodes { ... }
//
// Be aware:
//   - Lists are read page by page, agents are asked a few at a time. What may not be read is a row,
//     not an error.
//   - Counters are those of agents since they have started. Events are kept for an hour, as a rule.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// Options say what to look at.
type Options struct {
	Namespace string    // the agents'; "" is all, by their labels
	All       bool      // nodes where all is well are listed, too
	Now       time.Time // by this machine's clock
}

// Report is what was found.
type Report struct {
	Rows  []verdict.Row `json:"rows"`  // about the cluster as a whole
	Nodes []Node        `json:"nodes"` // the worst first
	Fine  int           `json:"fine"`  // nodes where all is well, whether they are listed or not

	all bool // text is not cut
}

// Node is what was found about one.
type Node struct {
	Name    string        `json:"name"`            // as the API server has it
	Verdict verdict.Word  `json:"verdict"`         // the worst of its rows
	Rows    []verdict.Row `json:"rows"`            // never none
	Agent   *Agent        `json:"agent,omitempty"` // what it reports, if it was read
}

// Agent is what a node's agent reports. Counters are by the words of the metrics' labels.
type Agent struct {
	Pod      string         `json:"pod"`                // NAMESPACE/NAME
	Image    string         `json:"image"`              // as its pod has it
	Ready    bool           `json:"ready"`              // its pod is
	Reason   string         `json:"reason,omitempty"`   // one of those in docs/installer.md, if it was read
	Way      string         `json:"way,omitempty"`      // of the entry into the chain, if there is one
	Backends []string       `json:"backends,omitempty"` // that work there
	Commands map[string]int `json:"commands,omitempty"` // "ADD redirected", "ADD failed bad_annotations", ...
	Findings map[string]int `json:"findings,omitempty"` // pods by what the last look has found
	Repairs  map[string]int `json:"repairs,omitempty"`  // by their results
	Guard    map[string]int `json:"guard,omitempty"`    // sandboxes by the guard's decision
}

// ofChart selects what the chart makes.
const ofChart = "app.kubernetes.io/name=sidecar-cni"

// Look asks the API server. The error is about a server that answers nothing.
func Look(ctx context.Context, client *rest.RESTClient, o Options) (Report, error) {
	l := &look{options: o, client: client}
	if err := l.read(ctx); err != nil {
		return Report{}, err
	}
	l.askAgents(ctx)
	r := Report{Rows: append(l.rows, l.daemonSetRow()), all: o.All}
	for _, n := range l.nodes {
		one := l.judge(n)
		if one.Verdict == verdict.OK {
			r.Fine++
		}
		if one.Verdict != verdict.OK || o.All {
			r.Nodes = append(r.Nodes, one)
		}
	}
	slices.SortStableFunc(r.Nodes, func(a, b Node) int {
		return cmp.Or(rank(b.Verdict)-rank(a.Verdict), strings.Compare(a.Name, b.Name))
	})
	return r, nil
}

// rank orders verdicts, the worst last.
func rank(w verdict.Word) int {
	return slices.Index([]verdict.Word{verdict.OK, verdict.Unknown, verdict.Warning,
		verdict.Wrong}, w)
}

// Wrong reports whether something keeps pods from starting redirected.
func (r Report) Wrong() bool {
	return verdict.Count(r.Rows, verdict.Wrong) > 0 || r.count(verdict.Wrong) > 0
}

func (r Report) count(word verdict.Word) int {
	n := 0
	for _, one := range r.Nodes {
		if one.Verdict == word {
			n++
		}
	}
	return n
}

const (
	// shown is how many groups of nodes are written for people who did not ask for all.
	shown = 50
	// alike is how many nodes of a group are named beside the first.
	alike = 4
)

// Text writes the report for people.
func (r Report) Text(p *view.Page) {
	wrong, odd := r.count(verdict.Wrong), r.count(verdict.Warning)+r.count(verdict.Unknown)
	summary := fmt.Sprintf("%s: %d fine, %d wrong, %d to look after",
		counted(r.Fine+wrong+odd, "node"), r.Fine, wrong, odd)
	switch {
	case r.Wrong():
		p.Wrong(0, summary)
	case odd > 0 || verdict.Count(r.Rows, verdict.OK) < len(r.Rows):
		p.Odd(0, summary)
	default:
		p.Heading(summary)
	}
	verdict.Text(p, r.Rows)
	if len(r.Nodes) == 0 {
		return
	}
	p.Blank()
	if r.all {
		var rows []verdict.Row
		for _, n := range r.Nodes {
			rows = append(rows, n.labelled(n.Rows)...)
		}
		verdict.Text(p, rows)
		return
	}
	r.grouped(p)
}

// grouped writes the nodes of which the same is to be said together.
func (r Report) grouped(p *view.Page) {
	var groups [][]Node
	at := map[string]int{} // by what is to be said
	for _, n := range r.Nodes {
		said := fmt.Sprintf("%q", n.problems())
		i, there := at[said]
		if !there {
			i, at[said] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], n)
	}
	var rows []verdict.Row
	for _, g := range groups[:min(len(groups), shown)] {
		rows = append(rows, g[0].labelled(g[0].problems())...)
		if len(g) > 1 {
			rows = append(rows, verdict.Row{What: "also " + others(g[1:])})
		}
	}
	verdict.Text(p, rows)
	if left := groups[min(len(groups), shown):]; len(left) > 0 {
		p.Paragraph(0, counted(len(slices.Concat(left...)), "node")+" more, none of them worse: "+
			"--all lists them")
	}
}

// problems are the rows about what is not well.
func (n Node) problems() []verdict.Row {
	return slices.DeleteFunc(slices.Clone(n.Rows), func(r verdict.Row) bool {
		return r.Verdict == verdict.OK
	})
}

// labelled puts the node's name in front of the first row.
func (n Node) labelled(rows []verdict.Row) []verdict.Row {
	labelled := slices.Clone(rows)
	for i, row := range labelled {
		labelled[i].What, labelled[i].About = row.About+": "+row.What, ""
	}
	labelled[0].About = n.Name
	return labelled
}

func others(nodes []Node) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), alike)] {
		names = append(names, n.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(nodes) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func counted(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
