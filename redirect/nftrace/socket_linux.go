package nftrace

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// sender is a packet that is ready to be sent.
type sender struct {
	tuple tuple
	in    string // the interface through which it will enter; "": the pod sends it
	send  func() error
	close func()
}

// fromPod opens a socket of the pod, in the namespace of the calling thread.
func fromPod(r Request) (*sender, error) {
	owner, err := outside(*r.Packet.Owner)
	if err != nil {
		return nil, err
	}
	var s *sender
	zone, err := r.zone()
	if err != nil {
		return nil, err
	}
	err = as(owner, func() error {
		s, err = r.open(zone)
		return err
	})
	return s, err
}

// zone is the index of the interface by which a link-local destination is to be reached; 0: it is
// no such destination.
func (r Request) zone() (uint32, error) {
	to := r.Packet.Destination.Addr()
	if !to.Is6() || !to.IsLinkLocalUnicast() && !to.IsLinkLocalMulticast() &&
		!to.IsInterfaceLocalMulticast() {
		return 0, nil
	}
	all, err := links()
	if err != nil {
		return 0, err
	}
	for _, l := range all {
		if l.name == r.Packet.Out {
			return l.index, nil
		}
	}
	return 0, fmt.Errorf("the pod has no interface %q", r.Packet.Out)
}

func (r Request) open(zone uint32) (*sender, error) {
	to := r.Packet.Destination
	source := r.Packet.Source.Addr()
	if !source.IsValid() {
		var err error
		if source, err = r.sourceFor(to, zone); err != nil {
			return nil, err
		}
	}
	kind := unix.SOCK_STREAM
	if r.Packet.Protocol == redirect.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := r.socket(kind)
	if err != nil {
		return nil, err
	}
	from := netip.AddrPortFrom(source, 0)
	err = unix.Bind(fd, sockaddr(from, zone)) // by which the kernel chooses a port that nobody has
	if err != nil {
		err = fmt.Errorf("send from %s: %w", source, err)
	} else {
		from, err = boundTo(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &sender{tuple: tuple{r.Packet.Protocol, from, to}, close: func() { _ = unix.Close(fd) },
		send: func() error {
			if kind == unix.SOCK_DGRAM {
				return sent(unix.Sendto(fd, nil, 0, sockaddr(to, zone)), to)
			}
			return sent(unix.Connect(fd, sockaddr(to, zone)), to)
		}}, nil
}

// sourceFor is the address from which the kernel sends. Connecting a socket of UDP says it, and
// sends nothing.
func (r Request) sourceFor(to netip.AddrPort, zone uint32) (netip.Addr, error) {
	fd, err := r.socket(unix.SOCK_DGRAM)
	if err != nil {
		return netip.Addr{}, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(to, zone)); err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to %s: %w: look at the pod's routes",
			to.Addr(), err)
	}
	from, err := boundTo(fd)
	return from.Addr(), err
}

func (r Request) socket(kind int) (int, error) {
	family := unix.AF_INET
	if r.Packet.Destination.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	// As a program does that sends to all of a network.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("allow it to send to all of a network: %w", err)
	}
	return fd, nil
}

// sent judges what became of the sending. That the packet was dropped is what the kernel says, for
// it is dropped in any case.
func sent(err error, to netip.AddrPort) error {
	if err == nil || errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return fmt.Errorf("send to %s: %w", to, err)
}

// sockaddr is an address as sockets have it; zone counts for link-local ones only.
func sockaddr(a netip.AddrPort, zone uint32) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: zone}
}

func boundTo(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("read the socket's address: %w", err)
}
