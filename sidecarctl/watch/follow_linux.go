package watch

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/sockets"
)

// A finder knows the owners of sockets.
type finder interface {
	Find(p redirect.Protocol, local, remote netip.AddrPort) (sockets.Socket, bool, error)
}

// follower turns what connection tracking says into events of connections.
type follower struct {
	o       Options
	local   map[netip.Addr]bool // addresses of the namespace
	sockets finder              // nil: owners cannot be told
	// What was sent and received in a connection that is not gone; nil: nobody counts.
	counts func(key) (sent, received *Count)

	table  *table[key]
	lastID uint64
}

// begin returns the connection of a new entry, nil if it is none that is asked for or is known.
func (f *follower) begin(e entry, now time.Time) *Connection {
	if _, known := f.table.open[e.key]; known {
		return nil
	}
	c := Connection{Protocol: e.original.protocol.String(), Source: e.original.from,
		To: e.original.to, WentTo: e.reply.from, Zone: e.zone}
	if !f.o.about(c) {
		return nil
	}
	c.Listener = f.listener(c)
	c.From = f.sender(e, c.Listener)
	c.Direct = c.To == c.WentTo && !(c.From.Who == Peer && f.o.Policy.Mode == redirect.ModeTProxy)
	f.lastID++
	c.ID = f.lastID
	f.table.add(e.key, &followed{Connection: c, since: now})
	return &c
}

// about reports whether a connection is one that the options ask for.
func (o Options) about(c Connection) bool {
	if o.Protocol != redirect.AnyProtocol && o.Protocol.String() != c.Protocol {
		return false
	}
	return o.Port == 0 || o.Port == c.To.Port() || o.Port == c.WentTo.Port()
}

// listener is the proxy's that a connection was redirected to.
func (f *follower) listener(c Connection) string {
	if c.To == c.WentTo || !f.isLocal(c.WentTo.Addr()) {
		return ""
	}
	ports := f.o.Policy.Ports
	switch {
	case c.WentTo.Port() == ports.DNS:
		return "DNS"
	case c.Protocol != redirect.TCP.String():
		return ""
	case c.WentTo.Port() == ports.Outbound:
		return "outbound"
	case c.WentTo.Port() == ports.Inbound:
		return "inbound"
	}
	return ""
}

// sender is who began a connection. The rules lead none of the proxy's own to its outbound
// listener.
func (f *follower) sender(e entry, listener string) Party {
	local := f.isLocal(e.original.from.Addr())
	captured := listener == "outbound" || listener == "DNS"
	// With TPROXY the proxy calls the app from its client's address. A UDP socket may be bound to
	// all addresses, and would be taken for a peer's.
	if local || e.original.protocol == redirect.TCP {
		p := f.owner(e.original.protocol, e.original.from, e.original.to)
		switch {
		case p == nil:
		case p.Who != Pod:
			return *p
		case !local: // only a transparent socket has an address that is not the pod's
			return Party{Who: Proxy, UID: p.UID}
		case captured:
			return Party{Who: App, UID: p.UID}
		default:
			return *p
		}
	}
	switch {
	case !local:
		return Party{Who: Peer}
	case captured:
		return Party{Who: App}
	}
	return Party{Who: Pod}
}

// owner is who has the socket that sends from local to remote, nil if nobody knows.
func (f *follower) owner(p redirect.Protocol, local, remote netip.AddrPort) *Party {
	if f.sockets == nil {
		return nil
	}
	s, ok, err := f.sockets.Find(p, local, remote)
	if err != nil || !ok { // without a socket to name, the event is worth reading all the same
		return nil
	}
	who := App
	switch {
	case slices.Contains(f.o.Policy.Proxy.UIDs, s.UID):
		who = Proxy
	case s.UID == 0 && f.o.Policy.Mode == redirect.ModeTProxy:
		who = Pod // a proxy that has to be transparent runs as root, with a group of its own
	}
	return &Party{Who: who, UID: &s.UID}
}

func (f *follower) isLocal(a netip.Addr) bool { return a.IsLoopback() || f.local[a] }

// change notes what happens to a connection, and returns it if that is its end.
func (f *follower) change(e entry, now time.Time) *Connection {
	one, known := f.table.open[e.key]
	if !known {
		return nil
	}
	f.receiver(one, e)
	switch {
	case e.original.protocol != redirect.TCP:
		return nil
	case e.state == stateTimeWait:
		return f.end(e, Closed, now)
	case e.state == stateClose:
		return f.end(e, e.reset(), now)
	}
	return nil
}

// receiver notes who has the socket at the other end, if that is of this pod and accepted already.
func (f *follower) receiver(one *followed, e entry) {
	if one.Receiver != nil || !f.isLocal(e.reply.from.Addr()) {
		return
	}
	one.Receiver = f.owner(e.original.protocol, e.reply.from, e.reply.to)
	if one.Receiver != nil && one.Receiver.Who == App && one.To == one.WentTo {
		one.Direct = true // which TPROXY left open until now
	}
}

// gone returns the connection of an entry that connection tracking has removed, nil if its end was
// reported before.
func (f *follower) gone(e entry, now time.Time) *Connection {
	_, known := f.table.open[e.key]
	if !known {
		return nil
	}
	outcome := Idle
	switch {
	case e.state == stateTimeWait:
		outcome = Closed
	case e.state == stateClose:
		outcome = e.reset()
	case e.answered:
	case e.original.protocol == redirect.TCP && e.state == 0:
		outcome = NotOpened
	default:
		outcome = NoAnswer
	}
	return f.end(e, outcome, now)
}

// reset is what it is called that somebody has reset a connection.
func (e entry) reset() string {
	if e.established {
		return Reset
	}
	return Refused
}

func (f *follower) end(e entry, outcome string, now time.Time) *Connection {
	one := f.table.open[e.key]
	delete(f.table.open, e.key)
	c := one.Connection
	c.Outcome, c.Sent, c.Received = outcome, e.sent, e.received
	if c.Sent == nil && f.counts != nil {
		c.Sent, c.Received = f.counts(e.key)
	}
	if c.Protocol == redirect.TCP.String() && !one.since.IsZero() {
		c.Milliseconds = max(now.Sub(one.since).Milliseconds(), 1)
	}
	return &c
}
