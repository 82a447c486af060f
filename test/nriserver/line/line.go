// Package line is what package nriserver and its programs say to each other: requests on a
// program's stdin, replies and events on its stdout, each a line of JSON.
//
//	{"id":1,"do":"start"}
//	{"id":1,"took_ns":81000}
//	{"id":2,"do":"run_pod_sandbox","pod":{"id":"p1","name":"web","namespace":"shop"}}
//	{"event":"plugins","names":["10-sidecar-cni"]}
//	{"event":"synchronized","plugin":"10-sidecar-cni","messages":1,"took_ns":640000}
//	{"id":2,"error":"rpc error: code = Unknown desc = not this pod","took_ns":910000}
//
// It has the loop of the programs, too, so that each of them is little more than calls of the
// version of NRI's library that it is built with.
//
// Be aware: two modules use it, so it imports nothing but the standard library.
package line

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// What a request can ask for.
const (
	Start            = "start" // answered once plugins can connect
	Set              = "set"   // replaces what Synchronize tells
	RunPodSandbox    = "run_pod_sandbox"
	StopPodSandbox   = "stop_pod_sandbox"
	RemovePodSandbox = "remove_pod_sandbox"
	CreateContainer  = "create_container"
	StartContainer   = "start_container"
)

// What a program says unasked.
const (
	Synchronized = "synchronized" // a Synchronize has ended
	Plugins      = "plugins"      // one has registered, or is gone
)

// Request is a line on stdin. Pods and containers have the fields of NRI's own, under the names
// that api.proto gives them.
type Request[P, C any] struct {
	ID         int    `json:"id"`
	Do         string `json:"do"`
	Pod        P      `json:"pod,omitzero"`
	Container  C      `json:"container,omitzero"`
	Pods       []P    `json:"pods,omitempty"`
	Containers []C    `json:"containers,omitempty"`
}

// Message is a line on stdout: the reply to the request of that ID, or an event.
type Message struct {
	ID    int    `json:"id,omitempty"`
	Event string `json:"event,omitempty"`
	Error string `json:"error,omitempty"`
	// Took is what the request, or the Synchronize, has taken.
	Took time.Duration `json:"took_ns,omitempty"`
	// Plugin is the one that was synchronized, and Messages counts what was sent to it, too large
	// messages included.
	Plugin   string `json:"plugin,omitempty"`
	Messages int    `json:"messages,omitempty"`
	// Names are of all that are registered and connected. Two connections may share one.
	Names []string `json:"names,omitempty"`
}

// output writes lines.
type output struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func newOutput(w io.Writer) *output { return &output{encoder: json.NewEncoder(w)} }

func (o *output) write(m Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.encoder.Encode(m) // who does not read any more is about to kill us
}

// text returns what err says, nothing if it is nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
