package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// fairListener bounds how many connections are open. Anybody in the cluster can reach the port, so
// a new connection takes the place of one of the address that has most of them: who opens many
// takes their places from himself.
//
// It never keeps Accept waiting: who fills the places would keep everybody waiting.
//
// Be aware:
//   - All addresses have the same share. Strangers with many addresses leave the API servers
//     little, and an API server that is behind the same address as others shares with them.
//   - A connection whose first request is arriving counts as one without a request.
type fairListener struct {
	net.Listener
	limit   int // of connections
	logFull rate.Sometimes
	log     *zap.Logger
	mu      sync.Mutex
	open    map[netip.Addr][]*openConn // by the other side, in the order of their arrival
	count   int                        // of all that are open
	arrived int                        // of all that ever were
}

// openConn is a connection that counts.
type openConn struct {
	net.Conn
	listener *fairListener
	address  netip.Addr
	number   int  // in the order of arrival
	busy     bool // a request is on it; guarded by the listener's mutex
}

func newFairListener(l net.Listener, limit int, log *zap.Logger) *fairListener {
	return &fairListener{Listener: l, limit: limit, log: log,
		open: map[netip.Addr][]*openConn{}, logFull: rate.Sometimes{Interval: fullInterval}}
}

// Accept returns the next connection. If there is no room for it that one is closed, which the
// server finds out when it reads.
func (l *fairListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	newest := &openConn{Conn: conn, listener: l, address: addressOf(conn)}
	if evicted := l.add(newest); evicted != nil {
		_ = evicted.Close()
		l.logFull.Do(func() {
			l.log.Warn("closed a connection: there is no room for more",
				zap.Int("limit", l.limit), zap.Stringer("address", evicted.address))
		})
	}
	return newest, nil
}

// add counts a connection, and returns the one that has to go for it, nil if there is room: of the
// address that has most, the oldest one without a request, which can be the new one itself; if each
// has a request, the oldest.
func (l *fairListener) add(newest *openConn) (evicted *openConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[newest.address] = append(l.open[newest.address], newest)
	l.arrived++
	newest.number = l.arrived
	l.count++
	if l.count <= l.limit {
		return nil
	}
	most := l.open[newest.address]
	for _, conns := range l.open {
		if len(conns) > len(most) ||
			len(conns) == len(most) && conns[0].number < most[0].number {
			most = conns
		}
	}
	if i := slices.IndexFunc(most, func(c *openConn) bool { return !c.busy }); i >= 0 {
		return most[i]
	}
	return most[0]
}

// setState is the server's hook for what becomes of its connections.
func (l *fairListener) setState(conn net.Conn, state http.ConnState) {
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
	l.count--
	if len(conns) == 1 {
		delete(l.open, c.address)
		return
	}
	l.open[c.address] = slices.Delete(conns, i, i+1)
}

// addressOf is who has opened a connection: of IPv6 the network of 64 bits, in which a machine can
// give itself any address.
func addressOf(conn net.Conn) netip.Addr {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := remote.AddrPort().Addr().Unmap()
	if network, err := address.Prefix(64); err == nil && address.Is6() {
		return network.Addr()
	}
	return address
}
