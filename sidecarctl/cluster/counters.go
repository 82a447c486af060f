package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

// finding is what repair may find about a pod, and what to do.
type finding struct {
	word, what, remedy string
	verdict            verdict.Word
}

var findings = []finding{
	{"missing", "without redirection", "sidecarctl verify -A names them; delete them, or set " +
		"the chart's repair.mode to repair", verdict.Wrong},
	{"altered", "with other rules than were recorded", "their Events name the rule; delete them",
		verdict.Warning},
	{"foreign", "redirected by something else", "their Events name it; delete them where that " +
		"is not meant", verdict.Warning},
	{"excluded", "with a sidecar in an excluded namespace", "move them, or take the namespace " +
		"off the chart's excludeNamespaces", verdict.Warning},
	{"unreachable", "whose namespaces cannot be read", "see whether a security module denies it: " +
		"docs/security.md", verdict.Warning},
}

// metricsRows judge the counters of an agent, and what it says of its own state.
func (l *look) metricsRows(p pages) []verdict.Row {
	var rows []verdict.Row
	m := p.metrics
	checked := m.by("sidecar_cni_checked_pods", "finding")
	for _, f := range findings {
		if n := checked[f.word]; n > 0 {
			rows = append(rows, withHelp(row("repair", f.verdict, counted(n, "pod")+" "+f.what),
				f.remedy))
		}
	}
	if n := m.by("sidecar_cni_repairs_total", "result")["failed"]; n > 0 {
		rows = append(rows, withHelp(row("repair", verdict.Warning, fmt.Sprintf("%d failed since "+
			"the agent has started", n)), "the pods' Events SidecarRepairFailed say why"))
	}
	rows = append(rows, refused(m)...)
	rows = append(rows, guarded(m)...)
	for _, name := range slices.Sorted(maps.Keys(m.by("sidecar_cni_chain_conflicts_total",
		"file"))) {
		rows = append(rows, withHelp(row("chain", verdict.Warning, "another writer has taken the "+
			"plugin out of "+name), "the node's Event SidecarChainConflict names the remedy; "+
			"with Cilium it is cni.exclusive=false"))
	}
	return append(rows, l.alive(m)...)
}

// refused judges the pods whose start has failed.
func refused(m samples) []verdict.Row {
	failed := m.by("sidecar_cni_commands_total", "command", "outcome", "reason")
	var words []string
	for _, word := range slices.Sorted(maps.Keys(failed)) {
		if reason, ok := strings.CutPrefix(word, "ADD failed"); ok {
			words = append(words, fmt.Sprintf("%d for%s", failed[word], reason))
		}
	}
	if len(words) == 0 {
		return nil
	}
	return []verdict.Row{withHelp(row("refusals", verdict.Warning, "starts of pods that failed "+
		"since the agent has started: "+strings.Join(words, ", ")),
		"the pods' Events say why; docs/configuration.md explains the reasons")}
}

func guarded(m samples) []verdict.Row {
	var rows []verdict.Row
	if connected, there := m.value("sidecar_cni_guard_connected"); there && connected == 0 {
		rows = append(rows, withHelp(row("guard", verdict.Warning, "not connected to the runtime"),
			"the agent's log says why; see docs/guard.md"))
	}
	outcomes := m.by("sidecar_cni_guard_sandboxes_total", "outcome")
	for _, word := range []string{"refused", "open", "undecided"} {
		if n := outcomes[word]; n > 0 {
			rows = append(rows, withHelp(row("guard", verdict.Warning, fmt.Sprintf("%s %s since "+
				"the agent has started", counted(n, "start"), word)),
				"docs/guard.md explains the outcome; see why the plugin was not in the chain"))
		}
	}
	return rows
}

// alive judges whether the agent does what it does all the time.
func (l *look) alive(m samples) []verdict.Row {
	var rows []verdict.Row
	if synced, there := m.value("sidecar_cni_cache_synced"); there && synced == 0 {
		rows = append(rows, withHelp(row("cache", verdict.Warning, "the agent has not heard of "+
			"its pods"), "its log says whether the API server is silent or forbids it"))
	}
	last, there := m.value("sidecar_cni_last_pass_timestamp_seconds")
	if ago := l.options.Now.Sub(time.Unix(int64(last), 0)); there && last > 0 && ago > silence {
		rows = append(rows, withHelp(row("agent", verdict.Warning, "it has not looked at its node "+
			"for "+ago.Round(time.Second).String()), "delete its pod if its log says nothing"))
	}
	expiry, there := m.value("sidecar_cni_token_expiry_timestamp_seconds")
	if left := time.Unix(int64(expiry), 0).Sub(l.options.Now); there && expiry > 0 && left < soon {
		rows = append(rows, withHelp(row("token", verdict.Warning, "the plugin's runs out in "+
			left.Round(time.Second).String()), "the agent's log says why it gets no new one"))
	}
	return rows
}
