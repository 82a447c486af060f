package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

const (
	// atOnce is how many agents are asked at the same time.
	atOnce = 16
	// agentsTimeout is for all of them.
	agentsTimeout = 2 * time.Minute
)

// look is one look at a cluster.
type look struct {
	options Options
	client  *rest.RESTClient
	rows    []verdict.Row // about what could not be read

	daemonSets []daemonSet
	nodes      []node
	agents     map[string]pod     // by their node
	known      bool               // agents were listed
	pages      map[string]pages   // of agents, by their node
	waiting    map[string][]stuck // pods that wait for us, by their node
	events     []event            // of ours
}

// pages are what an agent says of itself.
type pages struct {
	metrics samples
	ready   string // what /readyz says; "" if it was not asked
	err     error  // the pages were not read
}

// read reads the lists. One that may not be read is a row. The error is about nodes that are not
// listed for another reason than rights.
func (l *look) read(ctx context.Context) error {
	var err error
	l.nodes, err = list[node](ctx, l.client, "nodes", api.List{
		Path: api.Path("/api/v1", "", "nodes")})
	if refused, ok := errors.AsType[*refusal](err); ok && !refused.forbidden && len(l.nodes) == 0 {
		return fmt.Errorf("read the cluster: %w", withRemedy(refused))
	}
	l.note("nodes", err)
	labelled, err := list[daemonSet](ctx, l.client, "daemonsets.apps", api.List{
		Path: api.Path("/apis/apps/v1", l.options.Namespace, "daemonsets"), Labels: ofChart})
	l.note("daemonset", err)
	l.daemonSets = slices.DeleteFunc(labelled, func(d daemonSet) bool {
		return !d.Spec.Template.Spec.Volumes.OfAgent()
	})
	err = l.readAgents(ctx)
	l.note("agents", err)
	l.known = err == nil
	l.readWaiting(ctx)
	if len(l.nodes) == 0 { // what is known of them without the right to list them
		for name := range l.agents {
			n := node{}
			n.Metadata.Name = name
			l.nodes = append(l.nodes, n)
		}
	}
	return nil
}

func withRemedy(r *refusal) error {
	if r.remedy == "" {
		return r
	}
	return fmt.Errorf("%w; %s", r, r.remedy)
}

// note makes a row of what was not read.
func (l *look) note(about string, err error) {
	refused, ok := errors.AsType[*refusal](err)
	if !ok {
		return
	}
	l.rows = append(l.rows, verdict.Row{About: about, Verdict: verdict.Unknown,
		What: refused.what, Remedy: refused.remedy})
}

// readAgents finds the agent of each node that counts: during an update there are two.
func (l *look) readAgents(ctx context.Context) error {
	labelled, err := list[pod](ctx, l.client, "pods", api.List{
		Path: api.Path("/api/v1", l.options.Namespace, "pods"), Labels: onnode.Labels})
	agents, conflict := onnode.Genuine(slices.DeleteFunc(labelled, func(p pod) bool {
		return p.Spec.NodeName == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
	}), pod.claim)
	if conflict != nil {
		return &refusal{what: conflict.Error()}
	}
	l.agents = map[string]pod{}
	for _, a := range agents {
		if _, there := l.agents[a.Spec.NodeName]; !there {
			l.agents[a.Spec.NodeName] = a
		}
	}
	return err
}

// askAgents reads the pages of agents, some at a time. If the first is forbidden, so are the
// others.
func (l *look) askAgents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, agentsTimeout)
	defer cancel()
	l.pages = map[string]pages{}
	var mu sync.Mutex
	var forbidden *refusal
	var g errgroup.Group
	g.SetLimit(atOnce)
	for name, agent := range l.agents {
		if agent.Status.Phase != "Running" {
			continue
		}
		g.Go(func() error {
			mu.Lock()
			over := forbidden != nil
			mu.Unlock()
			if over {
				return nil
			}
			p := ask(ctx, l.client, agent)
			mu.Lock()
			defer mu.Unlock()
			if refused, ok := errors.AsType[*refusal](p.err); ok && refused.forbidden {
				forbidden = refused
				return nil
			}
			l.pages[name] = p
			return nil
		})
	}
	_ = g.Wait() // nothing returns an error
	if forbidden != nil {
		l.pages = map[string]pages{}
		l.note("metrics", forbidden)
	}
}

// ask reads an agent's metrics, and why it is not ready if it is not.
func ask(ctx context.Context, client *rest.RESTClient, agent pod) pages {
	text, err := page(ctx, client, agent, "metrics")
	if err != nil {
		return pages{err: err}
	}
	p := pages{metrics: parseMetrics(text)}
	if reason, _ := p.metrics.chain(); !agent.ready() || !serving(reason) {
		p.ready, err = page(ctx, client, agent, "readyz")
		p.ready = strings.TrimSpace(p.ready)
		if err != nil { // then the metrics say it in a word
			p.ready = ""
		}
	}
	return p
}

// serving reports whether pods start redirected where an agent has this reason.
func serving(reason string) bool {
	return slices.Contains([]string{"effective", "superseded"}, reason)
}

func (l *look) daemonSetRow() verdict.Row {
	const about = "daemonset"
	row := verdict.Row{About: about, Verdict: verdict.OK}
	switch {
	case slices.ContainsFunc(l.rows, func(r verdict.Row) bool { return r.About == about }):
		row.About, row.Verdict = "agents", verdict.Unknown
		row.What = counted(len(l.agents), "agent") + " found; how many there should be, the " +
			"DaemonSet says"
		return row
	case len(l.daemonSets) == 0:
		row.Verdict, row.What = verdict.Wrong, "there is none with the label "+ofChart
		row.Remedy = "install the plugin, or name the namespace by --agent-namespace"
		return row
	case len(l.daemonSets) > 1:
		var names []string
		for _, d := range l.daemonSets {
			names = append(names, d.Metadata.Namespace+"/"+d.Metadata.Name)
		}
		row.Verdict, row.What = verdict.Wrong, "there are several: "+strings.Join(names, ", ")
		row.Remedy = "uninstall all but one, or look at one by --agent-namespace"
		return row
	}
	d := l.daemonSets[0]
	row.What = fmt.Sprintf("%s/%s: %d of %d agents ready, %d up to date with %s",
		d.Metadata.Namespace, d.Metadata.Name, d.Status.Ready, d.Status.Desired, d.Status.Updated,
		d.image())
	if d.Status.Ready < d.Status.Desired || d.Status.Updated < d.Status.Desired {
		row.Verdict = verdict.Warning
		row.Remedy = "wait for an update that is under way; else see the nodes below"
	}
	return row
}
