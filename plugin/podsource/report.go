package podsource

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// reportTimeout is for a machine under load: connecting and writing to a socket take microseconds,
// or never end.
const reportTimeout = 20 * time.Millisecond

// An Outcome is how a CNI command ended.
type Outcome struct {
	Command              string // ADD, DEL, CHECK, ...
	Namespace, Name, UID string
	Outcome              string   // such as redirected, skipped, failed
	Reason               string   // a word from a closed list: it becomes a metric's label
	Message              string   // of a failure: what the runtime was answered
	Notices              []string // what whoever runs the pod must know: they become Events
	Phases               map[string]time.Duration
}

// MarshalJSON writes durations as seconds, which is what metrics are in.
func (o Outcome) MarshalJSON() ([]byte, error) {
	phases := make(map[string]float64, len(o.Phases))
	for name, took := range o.Phases {
		phases[name] = took.Seconds()
	}
	return json.Marshal(wireOutcome{o.Command, o.Namespace, o.Name, o.UID, o.Outcome, o.Reason, o.Message, o.Notices, phases})
}

type wireOutcome struct {
	Command   string             `json:"command"`
	Namespace string             `json:"namespace,omitempty"`
	Name      string             `json:"name,omitempty"`
	UID       string             `json:"uid,omitempty"`
	Outcome   string             `json:"outcome"`
	Reason    string             `json:"reason,omitempty"`
	Message   string             `json:"message,omitempty"`
	Notices   []string           `json:"notices,omitempty"`
	Phases    map[string]float64 `json:"phases,omitempty"` // seconds
}

// Report hands an outcome to the agent. It does not wait for the answer, and an agent that is away
// misses it.
func (s Sources) Report(o Outcome) {
	body, err := json.Marshal(o)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, agentURL+"v1/outcomes", bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	req.Header.Set("User-Agent", userAgent)
	conn, err := s.dialAgent(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = req.Write(conn) // best effort: the plugin has its own work to do
}
