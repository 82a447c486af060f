package apiserver

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
)

// InMemory serves to clients of Config alone, without a socket: inside a synctest bubble.
func InMemory(t testing.TB) *Server {
	t.Helper()
	w := &wire{accepted: make(chan net.Conn), closed: make(chan struct{})}
	s := Serve(t, w)
	s.wire = w
	return s
}

// Refuse makes clients of a server in memory hear that nobody is there, or no longer. Connections
// that they have stay.
func (s *Server) Refuse(refused bool) { s.wire.refuse(refused) }

// A wire is a listener in memory. What goes through it does not leave a synctest bubble, where a
// minute takes no time.
type wire struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once

	mu  sync.Mutex
	cut bool
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case conn := <-w.accepted:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (w *wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443} }

// refuse makes whoever dials hear that nobody is there, or no longer.
func (w *wire) refuse(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

func (w *wire) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: w.Addr(),
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	select {
	case w.accepted <- buffered(theirs):
		return buffered(ours), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A bufferedConn does not make its writer wait for its reader: both ends of TLS and HTTP/2 begin by
// writing.
type bufferedConn struct {
	net.Conn
	mu     sync.Mutex
	queue  [][]byte
	more   *sync.Cond
	closed bool
}

func buffered(c net.Conn) net.Conn {
	b := &bufferedConn{Conn: c}
	b.more = sync.NewCond(&b.mu)
	go b.pump()
	return b
}

func (b *bufferedConn) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	b.queue = append(b.queue, append([]byte(nil), data...))
	b.more.Signal()
	return len(data), nil
}

func (b *bufferedConn) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Signal()
	return nil
}

// pump writes until the connection is closed and all is written, or the other end is closed.
func (b *bufferedConn) pump() {
	defer b.Conn.Close()
	for {
		b.mu.Lock()
		for len(b.queue) == 0 && !b.closed {
			b.more.Wait()
		}
		queue := b.queue
		b.queue = nil
		b.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, data := range queue {
			if _, err := b.Conn.Write(data); err != nil {
				return
			}
		}
	}
}
