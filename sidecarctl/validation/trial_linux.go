package validation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// trial tries all attempts at once, on one thread, so that all its sockets are of one namespace.
type trial struct {
	attempts  []*trying
	listeners map[place]*listener
	arriving  []*arriving
	token     string // in the questions, which tells them from anybody else's
}

// trying is an attempt on its way.
type trying struct {
	attempt
	fd    int
	asked bool // its question is sent

	untried  string         // why it could not be tried
	arrived  netip.AddrPort // at which of our sockets
	original netip.AddrPort // what it was meant for, as connection tracking says
	answered netip.AddrPort // UDP: from where
	err      error          // of its socket
}

// place is where somebody listens.
type place struct {
	protocol string
	at       netip.AddrPort
}

type listener struct {
	fd  int
	err error // why there is none
}

// placesOf are the sockets at which attempts should end.
func placesOf(attempts []attempt) []place {
	var all []place
	for _, a := range attempts {
		all = append(all, place{a.Protocol, a.want.at})
	}
	return all
}

// try tries attempts for a while, and listens in all places. It takes that long if one of them does
// not end where it should.
func try(ctx context.Context, attempts []attempt, places []place, timeout time.Duration) (
	[]*trying, error) {
	token := make([]byte, 8)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	t := &trial{listeners: map[place]*listener{}, token: hex.EncodeToString(token)}
	for _, a := range attempts {
		t.attempts = append(t.attempts, &trying{attempt: a, fd: -1})
	}
	defer t.close()
	t.listen(places)
	t.begin()
	return t.attempts, t.await(ctx, timeout)
}

func (t *trial) close() {
	for _, a := range t.attempts {
		a.close()
	}
	for _, l := range t.listeners {
		if l.err == nil {
			_ = unix.Close(l.fd)
		}
	}
	for _, c := range t.arriving {
		c.close()
	}
}

func (a *trying) close() {
	if a.fd >= 0 {
		_ = unix.Close(a.fd)
	}
	a.fd = -1
}

// listen opens the sockets, and settles which attempts cannot be tried.
func (t *trial) listen(places []place) {
	for _, where := range places {
		if _, there := t.listeners[where]; !there {
			l := &listener{}
			l.fd, l.err = open(where.protocol, where.at, true)
			t.listeners[where] = l
		}
	}
	for _, a := range t.attempts {
		where := place{a.Protocol, a.want.at}
		switch l := t.listeners[where]; {
		case l.err == nil:
		case errors.Is(l.err, unix.EADDRINUSE):
			a.untried = fmt.Sprintf("somebody listens on %s already", where.at)
		case errors.Is(l.err, unix.EACCES):
			a.untried = fmt.Sprintf("listening on %s takes CAP_NET_BIND_SERVICE", where.at)
		case errors.Is(l.err, unix.EADDRNOTAVAIL): // the rules come with it
			a.err = fmt.Errorf("address %s is not on lo", where.at.Addr())
		default:
			a.untried = fmt.Sprintf("listen on %s: %v", where.at, l.err)
		}
	}
}

// open makes a socket that listens at an address, or one for calling it.
func open(protocol string, at netip.AddrPort, listens bool) (int, error) {
	kind := unix.SOCK_STREAM
	if protocol == protocolUDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family(at.Addr()), kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := prepare(fd, kind, at, listens); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func prepare(fd, kind int, at netip.AddrPort, listens bool) error {
	if !listens {
		return limitHops(fd, at.Addr())
	}
	if kind == unix.SOCK_STREAM { // a connection of an earlier run may still be waiting for its end
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil || kind == unix.SOCK_DGRAM {
		return err
	}
	const queue = 128
	return unix.Listen(fd, queue)
}

// limitHops has packets that leave the pod end at the next hop.
func limitHops(fd int, to netip.Addr) error {
	if to.Is4() {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
}

// begin sends the first packet of each attempt.
func (t *trial) begin() {
	for i, a := range t.attempts {
		if a.untried == "" && a.err == nil {
			a.err = a.begin(t.question(i))
		}
	}
}

func (a *trying) begin(question []byte) error {
	var err error
	if a.fd, err = open(a.Protocol, a.To, false); err != nil {
		return err
	}
	source := a.packet.Source.Addr()
	if err := unix.Bind(a.fd, sockaddr(netip.AddrPortFrom(source, 0))); err != nil {
		return fmt.Errorf("send from %s: %w", source, err)
	}
	if a.Protocol == protocolUDP {
		return unix.Sendto(a.fd, question, 0, sockaddr(a.To))
	}
	err = unix.Connect(a.fd, sockaddr(a.To))
	if errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return err
}

// pollFor bounds how long a context that ended is not noticed.
const pollFor = 100 * time.Millisecond

// await looks where the attempts arrive, until all have or the time is up.
func (t *trial) await(ctx context.Context, timeout time.Duration) error {
	for until := time.Now().Add(timeout); time.Now().Before(until); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.done() {
			return nil
		}
		sockets, handlers := t.sockets()
		wait := max(min(time.Until(until), pollFor), 0) // less than that would be for ever
		n, err := unix.Poll(sockets, int(wait.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for connections: %w", err)
		}
		for i := range sockets {
			if n > 0 && sockets[i].Revents != 0 {
				handlers[i]()
			}
		}
	}
	return nil
}

// done reports whether all attempts are over, and well: for those that are not there is time.
func (t *trial) done() bool {
	return !slices.ContainsFunc(t.attempts,
		func(a *trying) bool { return a.untried == "" && !a.ok() })
}

// waits reports whether something may still happen.
func (a *trying) waits() bool {
	switch {
	case a.untried != "" || a.err != nil:
		return false
	case a.Protocol == protocolUDP:
		return !a.answered.IsValid()
	}
	return !a.arrived.IsValid()
}

// sockets are those to wait for, each with what to do when it is ready: those that listen first,
// since what arrives there also tells the sender that it is connected.
func (t *trial) sockets() (sockets []unix.PollFd, handlers []func()) {
	add := func(fd int, events int16, do func()) {
		sockets = append(sockets, unix.PollFd{Fd: int32(fd), Events: events})
		handlers = append(handlers, do)
	}
	for where, l := range t.listeners {
		if l.err != nil {
			continue
		}
		if where.protocol == protocolUDP {
			add(l.fd, unix.POLLIN, func() { t.answer(l.fd, where.at) })
		} else {
			add(l.fd, unix.POLLIN, func() { t.accept(l.fd, where.at) })
		}
	}
	for _, c := range t.arriving {
		if c.fd >= 0 {
			add(c.fd, unix.POLLIN, func() { t.recognize(c) })
		}
	}
	for i, a := range t.attempts {
		switch {
		case !a.waits():
		case a.Protocol == protocolUDP:
			add(a.fd, unix.POLLIN, func() { a.receive() })
		case a.asked: // only an error counts: the other end is waited for
			add(a.fd, 0, func() { a.fail() })
		default:
			add(a.fd, unix.POLLOUT, func() { a.ask(t.question(i)) })
		}
	}
	return sockets, handlers
}

// ask sends the question as soon as the connection is there.
func (a *trying) ask(question []byte) {
	if _, err := unix.Getpeername(a.fd); err != nil {
		a.fail()
		return
	}
	a.asked = true
	a.err = unix.Sendto(a.fd, question, unix.MSG_NOSIGNAL, nil)
}

func (a *trying) fail() {
	code, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		a.err = err
	case code != 0:
		a.err = unix.Errno(code)
	default: // connected to somebody, and ended by them
		a.err = errors.New("somebody else got it")
	}
}
