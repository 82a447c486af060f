// Package sockets reads which sockets of a network namespace receive what is sent to its ports, and
// whose they are. It asks the kernel by inet_diag, in the namespace of the calling thread.
//
//	r, err := sockets.Open()
//	defer r.Close()
//	listening, err := r.Receivers(redirect.TCP)
//	for _, s := range listening {
//		if s.Receives(netip.MustParseAddrPort("127.0.0.1:15001")) { ... }
//	}
//
// Be aware:
//   - A uid is a number of this process's user namespace. A pod with hostUsers: false has others:
//     its 1337 is read as 101337, say. What /proc/PID/uid_map of one of its processes says is the
//     translation.
//   - A socket says nothing of the process that has it: several may, and /proc/PID/fd names its
//     inode.
//   - A UDP socket that is connected receives from its peer only, and is not listed.
package sockets

import (
	"fmt"
	"net/netip"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Socket is one of TCP or UDP.
type Socket struct {
	Protocol string         `json:"protocol"` // TCP or UDP
	Local    netip.AddrPort `json:"local"`    // the address is 0.0.0.0 or :: if it is any
	UID      uint32         `json:"uid"`      // of its owner, in our user namespace
	Inode    uint32         `json:"inode"`    // names it in /proc/PID/fd

	// Takes what is sent to addresses that are not the namespace's, as a proxy with TPROXY has to.
	// nil: the kernel is too old to say it (it has no INET_DIAG_SOCKOPT).
	Transparent *bool `json:"transparent,omitempty"`

	// One of IPv6 that receives nothing of IPv4.
	V6Only bool `json:"v6only,omitempty"`
}

// Receives reports whether what is sent to an address and port of the namespace may arrive at the
// socket. One with a narrower address goes before one with a wider.
func (s Socket) Receives(to netip.AddrPort) bool {
	local, addr := s.Local.Addr(), to.Addr().Unmap()
	switch {
	case s.Local.Port() != to.Port():
		return false
	case !local.IsUnspecified():
		return local.Unmap().WithZone("") == addr.WithZone("")
	case local.Is4():
		return addr.Is4()
	}
	return addr.Is6() || !s.V6Only
}

// ModuleError is the error of a kernel that cannot tell about sockets, which is not to say that
// there are none.
type ModuleError struct {
	Protocol redirect.Protocol // TCP or UDP
	Module   string            // of the kernel, that is missing
	Option   string            // of the kernel's configuration, that builds it
}

func (e *ModuleError) Error() string {
	return fmt.Sprintf("the kernel cannot list sockets of %s: load its module %s (%s)", e.Protocol,
		e.Module, e.Option)
}

// missing is the error of a kernel that cannot tell about sockets of a protocol.
func missing(p redirect.Protocol) *ModuleError {
	if p == redirect.UDP {
		return &ModuleError{p, "udp_diag", "CONFIG_INET_UDP_DIAG"}
	}
	return &ModuleError{p, "tcp_diag", "CONFIG_INET_DIAG"}
}
