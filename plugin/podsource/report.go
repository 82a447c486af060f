package podsource

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
)

// reportTimeout is for a machine under load: connecting and writing to a socket take microseconds,
// or never end.
const reportTimeout = 20 * time.Millisecond

// Report hands an outcome to the agent. It does not wait for the answer, and an agent that is away
// misses it.
func (s Sources) Report(o protocol.Outcome) {
	body, err := json.Marshal(o)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	conn, err := s.sendAgent(ctx, http.MethodPost, protocol.PathOutcomes, body)
	if err == nil { // best effort: the plugin has its own work to do
		conn.Close()
	}
}
