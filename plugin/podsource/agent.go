package podsource

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
)

// userAgent is how the plugin calls itself.
const userAgent = names.Plugin

func (s Sources) askAgent(ctx context.Context, ref Ref) answer {
	a := s.readAgent(ctx, ref)
	if a.err != nil {
		a.err = fmt.Errorf("socket %s: %w", s.AgentSocket, a.err)
	}
	return a
}

// readAgent sends one request and reads one answer. A connection is all that it takes: net/http's
// Transport would add two goroutines and a pool for each.
func (s Sources) readAgent(ctx context.Context, ref Ref) answer {
	conn, err := s.sendAgent(ctx, protocol.PodPath(ref.Namespace, ref.Name, ref.UID))
	if err != nil {
		return silence(ctx, err)
	}
	defer conn.Close()
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, protocol.MaxAnswer)), nil)
	if err != nil {
		return silence(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return silence(ctx, err)
	}
	return readAnswer(resp.StatusCode, body, ref)
}

// sendAgent writes a request, and returns the connection for the answer. The end of ctx closes it,
// whatever waits for it.
func (s Sources) sendAgent(ctx context.Context, path string) (net.Conn, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, protocol.Origin+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	req.Header.Set("User-Agent", userAgent)
	conn, err := s.dial(ctx, "unix", s.AgentSocket)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	if err := req.Write(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func readAnswer(status int, body []byte, ref Ref) answer {
	if status == http.StatusOK {
		return ref.take(body)
	}
	var why protocol.Refusal
	err := json.Unmarshal(body, &why)
	switch {
	case status == http.StatusServiceUnavailable:
		return answer{verdict: undecided,
			err: fmt.Errorf("it does not know yet: %s", brief(why.Message))}
	case status == http.StatusNotFound && err == nil && why.Reason == protocol.ReasonAbsent:
		return answer{verdict: absent, err: errAbsent}
	case status == http.StatusNotFound && err == nil && why.Reason == protocol.ReasonUID &&
		ref.UID != "":
		return answer{verdict: absent, err: ref.otherUID(why.UID)}
	default:
		return answer{verdict: away, err: fmt.Errorf("%w: status %d", errNonsense, status)}
	}
}
