package agent

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	askTimeout = 3 * time.Second // for the other agent, and for the API server at the start
	turnPause  = time.Second     // between two looks at whose turn it is
)

// Shared serves the plugin on a socket that two agents have in turn, as during an update.
type Shared struct {
	Server  *Server                   // answers on the socket while it is this agent's
	Path    string                    // of the socket
	Pods    *Pods                     // which Server answers from; awaited at the start
	Leads   func() bool               // whether this agent is in charge of the node
	Refresh func(ctx context.Context) // finds out anew who is
	Log     *zap.Logger               // must not be nil

	serving atomic.Bool
}

// Serving reports whether the plugin is answered just now.
func (s *Shared) Serving() bool { return s.serving.Load() }

// Run serves the plugin until ctx ends. During an update it takes the socket over from an agent
// that knows the node's pods, so it first has a while to learn them.
func (s *Shared) Run(ctx context.Context) error {
	learning, cancel := context.WithTimeout(ctx, askTimeout)
	_ = s.Pods.WaitForSync(learning) // without them each question is passed on to the API server
	cancel()
	for s.awaitTurn(ctx) {
		socket, err := Listen(s.Path)
		if err != nil {
			return err
		}
		s.serving.Store(true)
		serving, end := context.WithCancel(ctx)
		go s.guard(serving, socket, end)
		err = s.Server.Serve(serving, socket)
		end()
		s.serving.Store(false)
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitTurn waits until the socket is ours to take, and reports false when ctx ends before.
func (s *Shared) awaitTurn(ctx context.Context) bool {
	ticker := time.NewTicker(turnPause)
	defer ticker.Stop()
	for ctx.Err() == nil && !s.ours() {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return ctx.Err() == nil
}

// ours reports whether the socket is this agent's to take: it is in charge, or nobody else
// answers. Who is in charge does not depend on the node's state: where there is no network, say, no
// agent is effective, and two would take the socket from each other.
func (s *Shared) ours() bool {
	if s.Leads() {
		return true
	}
	conn, err := net.DialTimeout("unix", s.Path, askTimeout) //nolint:noctx // the socket is on this node
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// guard ends the serving of a socket that nobody reaches any more, if it is this agent's to
// take again: a newer one may have ended in the middle of an update and left its own socket, or
// none.
func (s *Shared) guard(ctx context.Context, socket *Socket, end func()) {
	ticker := time.NewTicker(turnPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if !socket.lost() {
				continue
			}
			s.Refresh(ctx) // who is in charge may have changed
			if ctx.Err() == nil && s.ours() {
				s.Log.Warn("lost socket", zap.String("path", s.Path))
				end()
				return
			}
		}
	}
}
