package podsource

import (
	"bytes"
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, protocol.Origin+protocol.PathOutcomes, bytes.NewReader(body))
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
