package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	appPort      = 8080
	outboundPort = 15001
	inboundPort  = 15006
	timeout      = 5 * time.Second
)

// hop is somebody whom a call came through, as it reports itself. The answer to a call is all of
// them, the farthest first.
type hop struct {
	Who    string
	Port   uint16
	Caller string // whom it saw
	Wanted string // the original destination, if it is a proxy
}

// talk is what the demo's own processes do: app and proxy serve until they are ended, call makes
// one call.
func talk(role string) int {
	var err error
	switch role {
	case "app":
		err = serve(map[uint16]func(*net.TCPConn) ([]hop, error){appPort: answer})
	case "proxy":
		err = serve(map[uint16]func(*net.TCPConn) ([]hop, error){
			outboundPort: func(c *net.TCPConn) ([]hop, error) { return relay(c, nil) },
			// the address that says: from the proxy, do not capture
			inboundPort: func(c *net.TCPConn) ([]hop, error) {
				return relay(c, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)})
			},
		})
	case "call":
		err = call(os.Args[2])
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

// serve answers on ports, says on standard output when it does, and ends when nobody holds its
// standard input any more.
func serve(ports map[uint16]func(*net.TCPConn) ([]hop, error)) error {
	for port, handle := range ports {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: int(port)})
		if err != nil {
			return err
		}
		go accept(l, handle)
	}
	fmt.Fprintln(os.Stdout, "ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func accept(l *net.TCPListener, handle func(*net.TCPConn) ([]hop, error)) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			hops, err := handle(c)
			if err == nil {
				_ = json.NewEncoder(c).Encode(hops) // the caller notices
			}
		}()
	}
}

func addr(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

func answer(c *net.TCPConn) ([]hop, error) {
	return []hop{{Who: "app", Port: addr(c.LocalAddr()).Port(),
		Caller: addr(c.RemoteAddr()).Addr().String()}}, nil
}

// relay is a transparent proxy: it calls whom the caller meant, and adds itself to the answer.
func relay(c *net.TCPConn, from *net.TCPAddr) ([]hop, error) {
	wanted, err := originalDestination(c)
	if err != nil {
		return nil, err
	}
	onward, err := (&net.Dialer{LocalAddr: localAddr(from), Timeout: timeout}).Dial("tcp4",
		wanted.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = onward.Close() }()
	var hops []hop
	if err := json.NewDecoder(onward).Decode(&hops); err != nil {
		return nil, err
	}
	me := hop{Who: "proxy", Port: addr(c.LocalAddr()).Port(),
		Caller: addr(c.RemoteAddr()).Addr().String(), Wanted: wanted.String()}
	return append(hops, me), nil
}

func localAddr(from *net.TCPAddr) net.Addr {
	if from == nil {
		return nil // not a nil *TCPAddr in a net.Addr
	}
	return from
}

// originalDestination asks connection tracking whom the caller meant, as every transparent proxy
// does.
func originalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var mreq *unix.IPv6Mreq // as large as the sockaddr_in that the kernel writes
	var asked error
	err = raw.Control(func(fd uintptr) {
		mreq, asked = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
	})
	if err := errors.Join(err, asked); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", err)
	}
	b := mreq.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3])), nil
}

func call(to string) error {
	c, err := net.DialTimeout("tcp4", to, timeout)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(timeout)) // the decoder reports what comes of it
	var hops []hop
	if err := json.NewDecoder(c).Decode(&hops); err != nil {
		return fmt.Errorf("call %s: %w", to, err)
	}
	return json.NewEncoder(os.Stdout).Encode(hops)
}
