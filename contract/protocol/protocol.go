// Package protocol is what plugin and node agent say to each other over the agent's socket, as
// docs/agent-protocol.md describes it: paths, what is reported, what is refused, and limits. The
// form in which a pod travels is kubepod.Pod.
//
//	req, err := http.NewRequestWithContext(ctx, http.MethodGet, protocol.Origin+protocol.PodPath(namespace, name, uid), nil)
//
// Be aware: programs of several versions meet on a node. What is renamed or taken away here is gone
// for those that were built before; a new meaning gets a new path.
package protocol

import "net/url"

// The paths, as net/http's ServeMux writes them.
const (
	PathPod      = pods + "{namespace}/{name}" // GET, with the query uid; see PodPath
	PathOutcomes = "/v1/outcomes"              // POST of an Outcome
	PathHealth   = "/v1/healthz"               // GET
)

const pods = "/v2/pods/"

// Origin comes before a path in the URL of a request. Its Host means nothing: the socket does.
const (
	Origin = "http://" + Host
	Host   = "agent"
)

// PodPath is the path and the query by which a pod is asked for. An empty uid is any.
func PodPath(namespace, name, uid string) string {
	return pods + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "?uid=" +
		url.QueryEscape(uid)
}

// The limits, in bytes.
const (
	// MaxAnswer is how much the plugin reads of an answer, head included. It is far above the
	// largest pod that the API server would store.
	MaxAnswer = 4 << 20
	// MaxOutcome is how large an Outcome may be: the agent refuses more.
	MaxOutcome = 64 << 10
)

// A Refusal is the body of every answer of the agent that is not a pod.
type Refusal struct {
	Reason  Reason `json:"reason"`            // one of those below
	UID     string `json:"uid,omitempty"`     // of ReasonUID: the one that the pod has
	Message string `json:"message,omitempty"` // for people
}

// Reason is why the agent does not hand out a pod, as a word for programs.
type Reason string

// The reasons. Of a 404, ReasonAbsent and ReasonUID are about the pod; any other is about the path:
// such an agent speaks another protocol.
const (
	ReasonAbsent    Reason = "absent"    // 404: the API server has no pod of that name
	ReasonUID       Reason = "uid"       // 404: the pod of that name has another uid
	ReasonPath      Reason = "path"      // 404: there is no such path
	ReasonUnsynced  Reason = "unsynced"  // 503: the agent does not know yet
	ReasonMalformed Reason = "malformed" // 400: the request, or 500: what would be the answer
)

// An Outcome is how a CNI command ended. The words in it become labels of metrics: they are from
// short, closed lists of whichever version of the plugin reports.
type Outcome struct {
	Command string `json:"command"` // ADD, DEL, CHECK, GC or STATUS

	// The pod that the call names. UID is empty if it is not known.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`

	Outcome string             `json:"outcome"`           // such as redirected, skipped, Failed
	Reason  string             `json:"reason,omitempty"`  // of a skip or a failure
	Source  string             `json:"source,omitempty"`  // one of those below: where the pod is from
	Message string             `json:"message,omitempty"` // see docs/agent-protocol.md
	Notices []string           `json:"notices,omitempty"` // for the pod's owner: each is an Event
	Phases  map[string]float64 `json:"phases,omitempty"`  // how long each took, in seconds
}

// Failed is the Outcome of a command that returned an error.
const Failed = "failed"

// The sources of what a pod is.
const (
	SourceRuntime   = "runtime"    // the call itself
	SourceRecord    = "record"     // what ADD recorded; of CHECK only
	SourceFile      = "file"       // the pod's file (contract/podfile), while it was fresh
	SourceAgent     = "agent"      // the agent's socket
	SourceAPI       = "api"        // the API server
	SourceStaleFile = "stale_file" // the pod's file, when agent and API server were silent
)

// Sources lists all words that Outcome.Source can be.
func Sources() []string {
	return []string{SourceRuntime, SourceRecord, SourceFile, SourceAgent, SourceAPI,
		SourceStaleFile}
}
