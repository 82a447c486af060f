package netns

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A Listener describes a server that answers every call with a Report.
type Listener struct {
	Who      string
	As       Identity
	TCP, UDP []uint16
	Addr     netip.Addr // every address of both families unless set
	// takes what TPROXY hands over and answers from addresses that are not local
	Transparent bool
}

// Listening is a running Listener.
type Listening struct {
	Listener
	t      testing.TB
	epoll  *os.File
	waiter syscall.RawConn // of epoll
	ready  map[int]func()  // by socket: what to do when it can be read
	done   chan struct{}
}

// Listen starts a server, which stops with the test at the latest.
func (n *NS) Listen(t testing.TB, l Listener) *Listening {
	t.Helper()
	s := &Listening{Listener: l, t: t, ready: map[int]func(){}, done: make(chan struct{})}
	s.openEpoll()
	for _, addr := range l.addrs() {
		for _, port := range l.TCP {
			s.open(n, netip.AddrPortFrom(addr, port), unix.SOCK_STREAM)
		}
		for _, port := range l.UDP {
			s.open(n, netip.AddrPortFrom(addr, port), unix.SOCK_DGRAM)
		}
	}
	go s.serve(n.outside(l.As))
	t.Cleanup(s.Close)
	return s
}

func (s *Listening) openEpoll() {
	s.t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that os.NewFile hands it to the runtime's poller
	}
	if err == nil {
		s.epoll = os.NewFile(uintptr(fd), "epoll")
		s.waiter, err = s.epoll.SyscallConn()
	}
	if err != nil {
		s.t.Fatalf("listen as %s: open epoll: %v", s.Who, err)
	}
}

func (l Listener) addrs() []netip.Addr {
	if l.Addr.IsValid() {
		return []netip.Addr{l.Addr}
	}
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// Close stops the server: when it returns, calls to its ports are refused.
func (s *Listening) Close() {
	s.epoll.Close()
	<-s.done
}

// open adds a listening socket.
func (s *Listening) open(n *NS, at netip.AddrPort, kind int) {
	s.t.Helper()
	fd, err := n.socket(s.t, s.As, at.Addr(), kind)
	if err == nil {
		if err = s.bind(fd, at, kind); err != nil {
			unix.Close(fd)
		}
	}
	if at.Addr() == netip.IPv6Unspecified() &&
		(errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
		return // no IPv6 here
	}
	if err != nil {
		s.t.Fatalf("listen as %s on %s: %v", s.Who, at, err)
	}
	accept := func() { s.answerStream(fd, at.Port()) }
	if kind == unix.SOCK_DGRAM {
		accept = func() { s.answerDatagram(fd, at.Port()) }
	}
	s.watch(fd, accept)
}

func (s *Listening) bind(fd int, at netip.AddrPort, kind int) error {
	// Sockets of an earlier server may linger.
	options := []option{{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}}
	packetInfo := option{unix.SOL_IP, unix.IP_PKTINFO, 1}
	if at.Addr().Is6() {
		// IPv4 has its own socket: a call never shows up as ::ffff:192.0.2.7.
		options = append(options, option{unix.SOL_IPV6, unix.IPV6_V6ONLY, 1})
		packetInfo = option{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1}
	}
	if s.Transparent {
		options = append(options, transparent(at.Addr()))
	}
	if kind == unix.SOCK_DGRAM {
		options = append(options, packetInfo)
	}
	if err := setOptions(fd, options...); err != nil {
		return err
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return err
	}
	if kind == unix.SOCK_DGRAM {
		return nil
	}
	return unix.Listen(fd, unix.SOMAXCONN)
}

// watch owns fd from here on and calls ready, on the server's thread, whenever it can be read.
func (s *Listening) watch(fd int, ready func()) {
	s.ready[fd] = ready
	s.control(unix.EPOLL_CTL_ADD, fd)
}

// drop closes a socket. Closing alone would not stop the epoll from reporting it while the child of
// a fork holds a copy.
func (s *Listening) drop(fd int) {
	s.control(unix.EPOLL_CTL_DEL, fd)
	delete(s.ready, fd)
	unix.Close(fd)
}

func (s *Listening) control(operation, fd int) {
	var err error
	closed := s.waiter.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), operation, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	})
	if closed == nil && err != nil {
		s.t.Errorf("serve as %s: change epoll: %v", s.Who, err)
	}
}

// serve answers calls until the epoll is closed. It does so as the listener's user throughout, for
// an accepted socket belongs to the thread that accepted it, not to the one that listened.
func (s *Listening) serve(id Identity) {
	defer close(s.done)
	defer s.closeSockets()
	err := as(id, func() {
		for s.await() {
		}
	})
	if err != nil {
		s.t.Errorf("serve as %s: %v", s.Who, err)
	}
}

// await waits for a call, answers what has come and reports whether there can be more. It waits in
// the runtime's poller, which can watch an epoll like any file: a thread blocked in epoll_wait
// would hold up others for as long as the scheduler takes to notice.
func (s *Listening) await() bool {
	var events [16]unix.EpollEvent
	var n int
	closed := s.waiter.Read(func(epoll uintptr) bool {
		n, _ = unix.EpollWait(int(epoll), events[:], 0)
		return n > 0
	})
	if closed != nil {
		return false
	}
	for _, e := range events[:n] {
		s.ready[int(e.Fd)]()
	}
	return true
}

func (s *Listening) closeSockets() {
	for fd := range s.ready {
		deafen(fd)
		unix.Close(fd)
	}
}

// deafen makes the kernel refuse further calls to a socket. Closing it is not enough: the child of
// a fork anywhere in this process holds a copy until it is well into exec, later even than vfork
// and syscall.ForkLock can tell.
func deafen(fd int) {
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if kind == unix.SOCK_STREAM {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		return
	}
	// A connected UDP socket gets nothing but what its peer sends. Where this one cannot be reached
	// nothing else can.
	nobody := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 9)
	if domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET,
		unix.SO_DOMAIN); domain == unix.AF_INET6 {
		nobody = netip.AddrPortFrom(netip.IPv6Loopback(), 9)
	}
	_ = unix.Connect(fd, sockaddr(nobody))
}
