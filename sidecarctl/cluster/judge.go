package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

const (
	// conditionType and taintKey are the agent's, in the Node object.
	conditionType = "SidecarCNIReady"
	taintKey      = "sidecar-cni.io/not-ready"
	// silence is how long an agent may not look at its node: it does so every minute.
	silence = 10 * time.Minute
	// soon is when the plugin's token should have been renewed.
	soon = 15 * time.Minute
	// named is how many pods of a node are named.
	named = 5
)

// judge makes the rows of a node.
func (l *look) judge(n node) Node {
	name := n.Metadata.Name
	one := Node{Name: name, Verdict: verdict.OK}
	agent, there := l.agents[name]
	switch {
	case there:
		p, asked := l.pages[name]
		one.Agent = report(agent, p)
		one.Rows = append(one.Rows, l.agentRow(n, agent, p))
		if asked {
			one.Rows = append(one.Rows, l.metricsRows(p)...)
		}
	case l.known:
		one.Rows = append(one.Rows, l.absent(n))
	default:
		one.Rows = append(one.Rows, row("agent", verdict.Unknown, "agents were not listed"))
	}
	one.Rows = append(one.Rows, l.objectRows(n, there && agent.ready())...)
	one.Rows = append(one.Rows, l.waitingRows(name)...)
	one.Rows = append(one.Rows, l.eventRows(name)...)
	for _, r := range one.Rows {
		if rank(r.Verdict) > rank(one.Verdict) {
			one.Verdict = r.Verdict
		}
	}
	return one
}

func report(agent pod, p pages) *Agent {
	a := &Agent{Pod: agent.name(), Image: agent.Spec.image(), Ready: agent.ready(),
		Commands: p.metrics.by("sidecar_cni_commands_total", "command", "outcome", "reason"),
		Findings: p.metrics.by("sidecar_cni_checked_pods", "finding"),
		Repairs:  p.metrics.by("sidecar_cni_repairs_total", "result"),
		Guard:    p.metrics.by("sidecar_cni_guard_sandboxes_total", "outcome"),
		Backends: slices.Sorted(maps.Keys(p.metrics.by("sidecar_cni_backend_usable", "backend")))}
	a.Reason, a.Way = p.metrics.chain()
	return a
}

func row(about string, word verdict.Word, what string) verdict.Row {
	return verdict.Row{About: about, Verdict: word, What: what}
}

func withHelp(r verdict.Row, remedy string) verdict.Row {
	r.Remedy = remedy
	return r
}

// absent judges a node without an agent.
func (l *look) absent(n node) verdict.Row {
	const without = "none, so that meshed pods there start without redirection"
	ours := row("agent", verdict.Warning, "")
	if ready, found := find(n.Status.Conditions, "Ready"); found && ready.Status != "True" {
		ours.What = "none; the node itself is not ready: " + ready.Message
		return ours
	}
	if len(l.daemonSets) != 1 {
		return row("agent", verdict.Wrong, without)
	}
	d := l.daemonSets[0]
	for key, value := range d.Spec.Template.Spec.NodeSelector {
		if n.Metadata.Labels[key] != value {
			ours.What = without + ": the DaemonSet wants nodes with the label " + key + "=" + value
			return withHelp(ours, "label the node, change the chart's nodeSelector, or keep "+
				"meshed pods away from it")
		}
	}
	for _, t := range n.Spec.Taints {
		if !t.tolerated(d.Spec.Template.Spec.Tolerations) {
			ours.What = without + ": the DaemonSet does not tolerate the taint " + t.Key
			return withHelp(ours, "add it to the chart's tolerations, or keep meshed pods away "+
				"from the node")
		}
	}
	if d.Status.Current >= d.Status.Desired {
		ours.What = without + ": the DaemonSet does not want one there, by its affinity"
		return withHelp(ours, "change the chart's affinity, or keep meshed pods away from the node")
	}
	ours.Verdict, ours.What = verdict.Wrong, without
	return withHelp(ours, "see the Events of the DaemonSet: kubectl describe daemonset -n "+
		d.Metadata.Namespace+" "+d.Metadata.Name)
}

// agentRow judges a node's agent by its pod and by what it says of itself. The name of the pod is
// not in the row, so that of many nodes the same is said once.
func (l *look) agentRow(n node, agent pod, p pages) verdict.Row {
	const about = "agent"
	seek := "find the pod by kubectl get pods -n " + agent.Metadata.Namespace + " -o wide, and "
	describe := seek + "see kubectl describe pod"
	waits, message := agent.waits()
	reason, way := p.metrics.chain()
	switch {
	case waits != "" && !agent.ready():
		return withHelp(row(about, verdict.Wrong, "its pod waits in "+waits+colon(message)),
			describe)
	case agent.Status.Phase != "Running":
		return withHelp(row(about, verdict.Wrong, "its pod is "+agent.Status.Phase+
			colon(agent.Status.Message)), describe)
	case p.ready != "" && !strings.HasPrefix(p.ready, "ready"):
		return withHelp(row(about, verdict.Wrong, p.ready), remedyFor(reason))
	case reason != "" && !serving(reason):
		return withHelp(row(about, verdict.Wrong, "not ready: "+reason),
			remedyFor(reason))
	case !agent.ready():
		said, found := find(n.Status.Conditions, conditionType)
		if found && said.Status == "False" {
			return withHelp(row(about, verdict.Wrong, "not ready: "+said.Reason+
				colon(said.Message)), "on the node, sidecarctl node")
		}
		return withHelp(row(about, verdict.Wrong, "its pod is not ready"), seek+"look at its log")
	case p.err != nil:
		return withHelp(row("metrics", verdict.Unknown, "not read: "+api.Cause(p.err)),
			"see whether the API server reaches the agent's pod: a NetworkPolicy may keep it out")
	}
	what := "ready"
	if way != "" {
		what += ", way " + way
	}
	return row(about, verdict.OK, what+summed(p.metrics.by("sidecar_cni_commands_total",
		"command", "outcome"), "ADD "))
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// remedyFor says what to do about a reason for which an agent is not ready.
func remedyFor(reason string) string {
	if reason == "no_backend" {
		return "load the kernel modules that are named, by modprobe and /etc/modules-load.d, or " +
			"choose another backend; on the node, sidecarctl node says which module is where"
	}
	if reason == "uninstalled" {
		return "finish the uninstallation, or take it back by helm rollback"
	}
	const look = "on the node, sidecarctl node shows the row that is wrong"
	if reason == "" {
		return look
	}
	return "docs/installer.md explains the reason " + reason + "; " + look
}

// summed lists counts whose word begins with a prefix: ", 12 redirected, 3 skipped".
func summed(counts map[string]int, prefix string) string {
	text := ""
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		if rest, ok := strings.CutPrefix(word, prefix); ok {
			text += fmt.Sprintf(", %d %s", counts[word], rest)
		}
	}
	return text
}

// objectRows judge what the agent has written to the Node object.
func (l *look) objectRows(n node, ready bool) []verdict.Row {
	var rows []verdict.Row
	said, found := find(n.Status.Conditions, conditionType)
	if found && said.Status != "True" && ready {
		rows = append(rows, withHelp(row("condition", verdict.Warning, conditionType+" is "+
			said.Status+", and the agent's pod is ready: "+said.Reason+colon(said.Message)),
			"see whether the agent may patch the node's status: its log says so"))
	}
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return t.Key == taintKey })
	switch {
	case tainted && ready:
		rows = append(rows, withHelp(row("taint", verdict.Wrong, "the node has the taint "+taintKey+
			", and the agent is ready: no pod is scheduled there"), "set the chart's untaint, or "+
			"remove the taint: kubectl taint node "+n.Metadata.Name+" "+taintKey+"-"))
	case tainted:
		rows = append(rows, row("taint", verdict.Warning, "no pod is scheduled there until the "+
			"agent is ready, by the taint "+taintKey))
	}
	return rows
}

// waitingRows name the pods that do not start because of us.
func (l *look) waitingRows(node string) []verdict.Row {
	var rows []verdict.Row
	all := l.waiting[node]
	for i, s := range all {
		if i == named {
			rows = append(rows, row("pods", verdict.Wrong, fmt.Sprintf("%d more wait like these",
				len(all)-named)))
			break
		}
		why, remedy, _ := strings.Cut(s.why, "; remedy: ")
		rows = append(rows, withHelp(row("pod "+s.pod, verdict.Wrong, "waits"+in(s.state)+": "+why),
			remedy))
	}
	return rows
}

func in(state string) string {
	if state == "" {
		return ""
	}
	return " in " + state
}

// eventRows show what agents have said about the node itself.
func (l *look) eventRows(node string) []verdict.Row {
	var rows []verdict.Row
	for _, e := range l.events {
		if e.About.Kind == "Node" && e.About.Name == node && e.Type == "Warning" {
			rows = append(rows, row(e.Reason, verdict.Warning, e.Message))
		}
	}
	return rows[:min(len(rows), named)]
}
