package cluster

import (
	"context"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
)

// stuck is a pod that does not start because of us.
type stuck struct {
	pod   string // NAMESPACE/NAME
	state string // ContainerCreating, ...
	why   string // what the runtime or the agent has said
}

// notStarted is the kubelet's reason of an Event about a pod that has no sandbox.
const notStarted = "FailedCreatePodSandBox"

// refusals are our own reasons of Events about pods that do not start.
var refusals = []string{"SidecarRedirectFailed", "SidecarStartRefused"}

// readWaiting finds the pods that have a node and do not start, and why, by the Events about them.
func (l *look) readWaiting(ctx context.Context) {
	pending, err := list[pod](ctx, l.client, "pods", api.List{
		Path: api.Path("/api/v1", "", "pods"), Fields: "status.phase=Pending"})
	l.note("waiting pods", err)
	all := api.Path("/api/v1", "", "events")
	l.events, err = list[event](ctx, l.client, "events", api.List{Path: all,
		Fields: "source=" + names.Plugin})
	l.note("events", err)
	var runtimes []event
	if err == nil {
		runtimes, err = list[event](ctx, l.client, "events", api.List{Path: all,
			Fields: "reason=" + notStarted})
		l.note("events", err)
	}
	reasons := map[string]string{} // by a pod's uid
	for _, e := range runtimes {
		if why, ours := byPlugin(e.Message); ours {
			reasons[e.About.UID] = why
		}
	}
	for _, e := range l.events {
		if slices.Contains(refusals, e.Reason) {
			reasons[e.About.UID] = e.Message
		}
	}
	l.waiting = map[string][]stuck{}
	for _, p := range pending {
		why, there := reasons[p.Metadata.UID]
		state, _ := p.waits()
		if on := p.Spec.NodeName; there && on != "" {
			l.waiting[on] = append(l.waiting[on], stuck{p.name(), state, why})
		}
	}
}

// byPlugin takes what the plugin has answered out of what the kubelet says.
func byPlugin(message string) (why string, ours bool) {
	_, rest, ours := strings.Cut(message, `plugin type="`+names.Plugin+`"`)
	if !ours {
		return "", false
	}
	if _, answer, found := strings.Cut(rest, "): "); found {
		return answer, true
	}
	return message, true
}
