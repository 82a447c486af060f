package podsource

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/podfiles"
)

// A network is a machine's sockets in memory. Connections through it do not leave a synctest
// bubble, where time passes only while everybody waits: what takes ten seconds takes none, and is
// the same each time.
type network map[string]*listener

type listener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
}

const (
	agentAddress = "/run/sidecar-cni/agent.sock"
	apiAddress   = "api.test:6443"
)

func (n network) listen(address string) net.Listener {
	l := &listener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	n[address] = l
	return l
}

func (n network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l, ok := n[address]
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network,
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := connection(l)
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A conn is one end of a connection that, unlike net.Pipe's, does not wait for its reader to write:
// TLS would stand still where both ends say good-bye at once.
type conn struct {
	net.Addr
	in, out *stream
}

func connection(l *listener) (net.Conn, net.Conn) {
	a, b := newStream(), newStream()
	return &conn{l, a, b}, &conn{l, b, a}
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *conn) Close() error {
	c.in.end(net.ErrClosed)
	c.out.end(io.EOF)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c }
func (c *conn) RemoteAddr() net.Addr { return c }

func (c *conn) SetDeadline(t time.Time) error     { return c.in.setDeadline(t) }
func (c *conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil } // nothing waits to write

// A stream is one direction of a connection.
type stream struct {
	mu       sync.Mutex
	changed  *sync.Cond
	data     bytes.Buffer
	over     error // what reading brings when data is used up
	deadline time.Time
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case errors.Is(s.over, net.ErrClosed):
			return 0, s.over
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case s.data.Len() > 0:
			return s.data.Read(b)
		case s.over != nil:
			return 0, s.over
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return 0, os.NewSyscallError("write", syscall.EPIPE)
	}
	s.changed.Broadcast()
	return s.data.Write(b)
}

func (s *stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = why
	s.changed.Broadcast()
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

func (s *stream) setDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	s.changed.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), s.wake)
	}
	return nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *listener) Addr() net.Addr { return l }

func (l *listener) Network() string { return "memory" }

func (l *listener) String() string { return l.address }

// A world is all that the plugin can ask. Nobody in it knows any pod.
type world struct {
	network network
	run     string // the agents' run directory
	files   *podfiles.Files
	api     *apiserver.Server
	agent   *agent.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	n, run := network{}, t.TempDir()
	return &world{network: n, run: run, files: podfiles.New(t, run),
		api:   apiserver.Serve(t, n.listen(apiAddress)),
		agent: agent.Serve(t, n.listen(agentAddress))}
}

func (w *world) sources() Sources {
	return Sources{AgentSocket: agentAddress, Kubeconfig: w.api.Kubeconfig(), PodFiles: w.run,
		Dial: w.network.dial}
}

// away makes the address refuse connections.
func (w *world) away(address string) { delete(w.network, address) }

// find asks as the plugin does, and says how long that took.
func (w *world) find(t *testing.T, ref Ref) (Found, time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	started := time.Now()
	found, err := w.sources().Find(ctx, ref)
	return found, time.Since(started), err
}
