package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// fairListener bounds how many connections are open. Anybody in the cluster can reach the port, so
// a new connection takes the place of one of the address that has most of them: who opens many
// takes their places from himself, and the API servers always find room.
//
// It never keeps Accept waiting: who fills the places would keep everybody waiting.
type fairListener struct {
	net.Listener
	most   int // connections
	full   rate.Sometimes
	log    *zap.Logger
	mu     sync.Mutex
	open   map[string][]*openConn // by the other side's address, in the order of their arrival
	number int                    // of all that are open
}

// openConn is a connection that counts.
type openConn struct {
	net.Conn
	listener *fairListener
	address  string
	busy     bool // a request is on it; guarded by the listener's mutex
}

func newFairListener(l net.Listener, most int, log *zap.Logger) *fairListener {
	return &fairListener{Listener: l, most: most, log: log, open: map[string][]*openConn{},
		full: rate.Sometimes{Interval: fullInterval}}
}

// Accept returns the next connection. If there is no room for it that one is closed, which the
// server finds out when it reads.
func (l *fairListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	newest := &openConn{Conn: conn, listener: l, address: hostOf(conn.RemoteAddr())}
	if leaves := l.add(newest); leaves != nil {
		_ = leaves.Close()
		l.full.Do(func() {
			l.log.Warn("closed a connection: there is no room for more",
				zap.Int("connections", l.most), zap.String("of", leaves.address))
		})
	}
	return newest, nil
}

// add counts a connection, and returns the one that has to go for it, nil if there is room: of the
// address that has most, the oldest one without a request, which can be the new one itself; if all
// have one, the oldest.
func (l *fairListener) add(newest *openConn) (leaves *openConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[newest.address] = append(l.open[newest.address], newest)
	l.number++
	if l.number <= l.most {
		return nil
	}
	address := newest.address
	for other, conns := range l.open {
		if len(conns) > len(l.open[address]) {
			address = other
		}
	}
	conns := l.open[address]
	if i := slices.IndexFunc(conns, func(c *openConn) bool { return !c.busy }); i >= 0 {
		return conns[i]
	}
	return conns[0]
}

// note is the server's hook for what becomes of its connections.
func (l *fairListener) note(conn net.Conn, state http.ConnState) {
	if wrapped, ok := conn.(*tls.Conn); ok {
		conn = wrapped.NetConn()
	}
	if c, ok := conn.(*openConn); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.busy = state == http.StateActive
	}
}

// Close closes the connection and makes room.
func (c *openConn) Close() error {
	c.listener.remove(c)
	return c.Conn.Close()
}

func (l *fairListener) remove(c *openConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	conns := l.open[c.address]
	i := slices.Index(conns, c)
	if i < 0 {
		return // it was closed before
	}
	l.number--
	if l.open[c.address] = slices.Delete(conns, i, i+1); len(conns) == 1 {
		delete(l.open, c.address)
	}
}

// hostOf is an address without its port.
func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}
