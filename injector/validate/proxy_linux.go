package validate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// proxy stands in for the pod's proxy: it answers our own calls, and nobody else's, with what they
// were meant for.
type proxy struct {
	port     uint16
	question []byte // by which it knows a call of ours
	secret   string // by which a caller knows it

	listeners []net.Listener
	open      sync.WaitGroup // goroutines
	cancel    func()         // ends the connections
}

// unknown is the answer to a call that the kernel has not redirected.
const unknown = "an unknown address"

// listen opens the port where redirected calls arrive: on lo, so that nobody outside of the pod
// finds it open.
func listen(ctx context.Context, port uint16, calls []Call) (*proxy, error) {
	// rand.Text has 26 letters and digits.
	p := &proxy{port: port, question: []byte(rand.Text()), secret: rand.Text()}
	ctx, p.cancel = context.WithCancel(ctx)
	// What comes in by multipath TCP could not be asked for its original destination.
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	opened := map[netip.Addr]bool{}
	for _, c := range calls {
		addr := loopback(c.From)
		if opened[addr] {
			continue
		}
		opened[addr] = true
		at := netip.AddrPortFrom(addr, port).String()
		l, err := config.Listen(ctx, "tcp", at)
		if err != nil {
			p.close()
			return nil, cannotListen(at, err)
		}
		p.listeners = append(p.listeners, l)
		p.open.Go(func() { p.serve(ctx, l) })
	}
	return p, nil
}

// loopback is where the kernel redirects what a pod sends in the family of an address.
func loopback(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

func cannotListen(at string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		remedy = "; a container that starts earlier has the port, so put it behind this one, or " +
			"have it listen on another port"
	case errors.Is(err, unix.EACCES):
		remedy = "; the port takes a right that this container does not have, so have the proxy " +
			"listen on one from 1024, by the annotation sidecar-cni.io/inboundPort, or set the " +
			"chart's injector.guard to none"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return fmt.Errorf("listen on %s in place of the proxy%s: %w", at, remedy, err)
}

// close ends it, and waits until the port is free.
func (p *proxy) close() {
	p.cancel()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.open.Wait()
}

func (p *proxy) serve(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		p.open.Go(func() {
			end := hangUp(ctx, c)
			defer end()
			p.answer(c)
		})
	}
}

// answer says to a caller of ours what it meant to call.
func (p *proxy) answer(c net.Conn) {
	said := make([]byte, len(p.question))
	if _, err := io.ReadFull(c, said); err != nil || !bytes.Equal(said, p.question) {
		return
	}
	meant := unknown
	if original, ok := originalDestination(c); ok {
		meant = original.String()
	}
	_, _ = fmt.Fprintf(c, "%s%s\n", p.secret, meant) // a caller that is gone reports it
	_, _ = c.Read(said)                              // it ends the connection
}

// ask returns the answer to a call. An error means that somebody else has got it.
func (p *proxy) ask(c net.Conn) (original string, err error) {
	if _, err := c.Write(p.question); err != nil {
		return "", err
	}
	const longest = 128
	line, err := bufio.NewReader(io.LimitReader(c, longest)).ReadString('\n')
	if err != nil {
		return "", err
	}
	original, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), p.secret)
	if !ok {
		return "", errors.New("not our answer")
	}
	return original, nil
}

// hangUp returns what closes a connection, also if ctx ends before. It is reset, so that nothing of
// it waits for its end and keeps the real proxy from the port.
func hangUp(ctx context.Context, c net.Conn) func() {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() {
		stop()
		_ = c.Close()
	}
}

// originalDestination is what a connection was meant for, as connection tracking says.
func originalDestination(c net.Conn) (netip.AddrPort, bool) {
	socket, ok := c.(*net.TCPConn)
	if !ok {
		return netip.AddrPort{}, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, false
	}
	const soOriginalDst = 80 // of netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST
	// A sockaddr_in: family, port, address. A sockaddr_in6 has flow information before the address.
	level, address := unix.IPPROTO_IP, make([]byte, unix.SizeofSockaddrInet4)
	first, last := 4, 8
	if local, ok := c.LocalAddr().(*net.TCPAddr); ok && local.IP.To4() == nil {
		level, address = unix.IPPROTO_IPV6, make([]byte, unix.SizeofSockaddrInet6)
		first, last = 8, 24
	}
	asked := errors.New("closed")
	err = raw.Control(func(fd uintptr) {
		asked = wire.Getsockopt(int(fd), level, soOriginalDst, address)
	})
	if err != nil || asked != nil {
		return netip.AddrPort{}, false
	}
	addr, ok := netip.AddrFromSlice(address[first:last])
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(address[2:])), ok
}
