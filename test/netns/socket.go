package netns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// socket opens a non-blocking socket of id for addresses like addr. Namespace and identity are
// settled by that: what is done with the socket later may be done by any thread.
func (n *NS) socket(t testing.TB, id Identity, addr netip.Addr, kind int) (fd int, err error) {
	t.Helper()
	n.Do(t, func() {
		refused := as(n.outside(id), func() {
			fd, err = unix.Socket(family(addr), kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		})
		if refused != nil {
			t.Fatalf("open socket as %+v: %v", id, refused)
		}
	})
	return fd, err
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// An option is one setsockopt(2) with an integer.
type option struct{ level, name, value int }

func setOptions(fd int, options ...option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("set socket option %d/%d: %w", o.level, o.name, err)
		}
	}
	return nil
}

// transparent lets a socket use addresses that are not the namespace's.
func transparent(a netip.Addr) option {
	if a.Is4() {
		return option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}
	}
	return option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST, of linux/netfilter_ipv4.h and
// netfilter_ipv6/ip6_tables.h.
const soOriginalDst = 80

// originalDestination asks conntrack where an accepted connection was meant to go. It is the zero
// value where conntrack does not know the connection.
func originalDestination(fd int, local netip.Addr) netip.AddrPort {
	level := unix.SOL_IPV6
	if local.Is4() {
		level = unix.SOL_IP
	}
	// x/sys has no call of its own for this option; this one happens to start with a sockaddr_in6.
	info, err := unix.GetsockoptIPv6MTUInfo(fd, level, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, info.Addr.Port))
	if local.Is4() { // sockaddr_in has its address where sockaddr_in6 has the flow
		ip := binary.NativeEndian.AppendUint32(nil, info.Addr.Flowinfo)
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip)), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr), port)
}
