package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	outboundPort = 15001
	inboundPort  = 15006
	namesPort    = 15053
	healthPort   = 15021
	tproxyMark   = 1337
)

// sighting is what a proxy has seen of a connection or a question.
type sighting struct {
	Port           uint16 // its own
	Caller, Wanted string
}

// A proxy passes on, unaltered, what reaches it.
type proxy struct {
	mu    sync.Mutex
	lines *json.Encoder
	keeps bool // the client's address, as under TPROXY
}

// serveProxy returns only if it cannot serve. With PROXY_PROGRAM another proxy takes the process
// over: the argument "proxy" is what tells a sidecar.
func serveProxy(lines *json.Encoder) error {
	if program := strings.Fields(os.Getenv("PROXY_PROGRAM")); len(program) > 0 {
		return fmt.Errorf("run %s: %w", program[0], unix.Exec(program[0], program, os.Environ()))
	}
	p := &proxy{lines: lines, keeps: os.Getenv("ISTIO_META_INTERCEPTION_MODE") == "TPROXY"}
	ended := make(chan error)
	for _, family := range []string{"4", "6"} {
		for port, relay := range map[int]func(*net.TCPConn) error{outboundPort: p.relayOutbound,
			inboundPort: p.relayInbound} {
			l, err := p.listen("tcp"+family, port)
			if err != nil {
				return err
			}
			go func() { ended <- p.accept(l, relay) }()
		}
	}
	if err := p.serveNames(ended); err != nil {
		return err
	}
	health, err := net.Listen("tcp", fmt.Sprintf(":%d", healthPort))
	if err != nil {
		return err
	}
	go func() {
		// what it serves is "404" but for one page
		server := &http.Server{ReadHeaderTimeout: timeout}
		mux := http.NewServeMux()
		mux.HandleFunc("/healthz/ready", func(http.ResponseWriter, *http.Request) {})
		server.Handler = mux
		ended <- server.Serve(health)
	}()
	if err := lines.Encode(Ready{"proxy"}); err != nil {
		return err
	}
	return <-ended
}

// listen opens a port for connections that may have been meant for others.
func (p *proxy) listen(network string, port int) (net.Listener, error) {
	config := net.ListenConfig{}
	if p.keeps && port == inboundPort {
		config.Control = transparently
	}
	return config.Listen(context.Background(), network, fmt.Sprintf(":%d", port))
}

func (p *proxy) accept(l net.Listener, relay func(*net.TCPConn) error) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if err := relay(c.(*net.TCPConn)); err != nil {
				fmt.Fprintln(os.Stderr, "proxy:", err)
			}
		}()
	}
}

func (p *proxy) relayOutbound(c *net.TCPConn) error {
	wanted, err := originalDestination(c)
	if err != nil {
		return err
	}
	p.saw(outboundPort, c.RemoteAddr(), wanted.String())
	return relay(c, &net.Dialer{Timeout: timeout}, wanted)
}

// relayInbound calls the app from the address that says: this comes from the proxy. Under TPROXY it
// is the client's.
func (p *proxy) relayInbound(c *net.TCPConn) error {
	if p.keeps {
		wanted := netip.MustParseAddrPort(c.LocalAddr().String())
		p.saw(inboundPort, c.RemoteAddr(), wanted.String())
		client := c.RemoteAddr().(*net.TCPAddr)
		return relay(c, &net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: client.IP},
			Control: inDisguise}, wanted)
	}
	wanted, err := originalDestination(c)
	if err != nil {
		return err
	}
	p.saw(inboundPort, c.RemoteAddr(), wanted.String())
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
	if wanted.Addr().Is6() {
		from.IP = net.ParseIP("::6")
	}
	return relay(c, &net.Dialer{Timeout: timeout, LocalAddr: from}, wanted)
}

func (p *proxy) saw(port uint16, caller net.Addr, wanted string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// a test that reads finds it missing
	_ = p.lines.Encode(sighting{port, caller.String(), wanted})
}

// relay passes on what either says until both are silent.
func relay(c *net.TCPConn, dialer *net.Dialer, to netip.AddrPort) error {
	onward, err := dialer.Dial("tcp", to.String())
	if err != nil {
		return err
	}
	defer onward.Close()
	back := make(chan error)
	go func() { back <- pass(c, onward.(*net.TCPConn)) }()
	return errors.Join(pass(onward.(*net.TCPConn), c), <-back)
}

func pass(to, from *net.TCPConn) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.CloseWrite()
}

// serveNames listens on the loopback addresses alone, where redirected questions arrive: the
// answers must come from there.
func (p *proxy) serveNames(ended chan<- error) error {
	for _, loopback := range []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback} {
		names, err := net.ListenUDP("udp", &net.UDPAddr{IP: loopback, Port: namesPort})
		if err != nil {
			return err
		}
		go func() { ended <- p.relayNames(names) }()
	}
	return nil
}

// relayNames passes questions on to the pod's own server of names.
func (p *proxy) relayNames(questions *net.UDPConn) error {
	for {
		question := make([]byte, 1500)
		n, caller, err := questions.ReadFromUDP(question)
		if err != nil {
			return err
		}
		go func() {
			server, err := nameserver()
			if err != nil {
				return
			}
			p.saw(namesPort, caller, nameIn(question[:n]))
			answer, _, err := put(server, question[:n])
			if err != nil {
				fmt.Fprintln(os.Stderr, "proxy:", err)
				return
			}
			_, _ = questions.WriteToUDP(answer, caller) // whoever does not wait is gone
		}()
	}
}

// transparently lets a socket use addresses that are not the pod's.
func transparently(network, _ string, raw syscall.RawConn) error {
	level, name := unix.SOL_IP, unix.IP_TRANSPARENT
	if strings.HasSuffix(network, "6") {
		level, name = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	return option(raw, level, name, 1)
}

// inDisguise also marks what the socket sends as the proxy's. A listener must not: its answers
// would come back.
func inDisguise(network, address string, raw syscall.RawConn) error {
	return errors.Join(transparently(network, address, raw),
		option(raw, unix.SOL_SOCKET, unix.SO_MARK, tproxyMark))
}

func option(raw syscall.RawConn, level, name, value int) error {
	var refused error
	err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), level, name,
			value)
	})
	return errors.Join(err, refused)
}

// originalDestination asks connection tracking whom the caller meant.
func originalDestination(c *net.TCPConn) (wanted netip.AddrPort, err error) {
	const soOriginalDst = 80 // of linux/netfilter_ipv4.h, and of netfilter_ipv6/ip6_tables.h
	raw, err := c.SyscallConn()
	if err != nil {
		return wanted, err
	}
	v4 := c.LocalAddr().(*net.TCPAddr).IP.To4() != nil
	level := unix.SOL_IPV6
	if v4 {
		level = unix.SOL_IP
	}
	var info *unix.IPv6MTUInfo // it begins with room for either address
	var refused error
	if err := raw.Control(func(fd uintptr) {
		info, refused = unix.GetsockoptIPv6MTUInfo(int(fd),
			level, soOriginalDst)
	}); err != nil {
		return wanted, err
	}
	if refused != nil {
		return wanted, fmt.Errorf("ask for original destination: %w", refused)
	}
	port := info.Addr.Port<<8 | info.Addr.Port>>8
	if !v4 {
		return netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr), port), nil
	}
	flow := info.Addr.Flowinfo // where an IPv4 address lies
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(flow), byte(flow >> 8), byte(flow >> 16),
		byte(flow >> 24)}), port), nil
}

// put asks a server of names, and says from where.
func put(server string, question []byte) (answer []byte, me string, err error) {
	conn, err := net.DialTimeout("udp", server, timeout)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout)) // reading reports what comes of it
	if _, err := conn.Write(question); err != nil {
		return nil, "", err
	}
	answer = make([]byte, 1500)
	n, err := conn.Read(answer)
	return answer[:n], conn.LocalAddr().String(), err
}
