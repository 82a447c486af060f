package netns

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// answerStream accepts a connection, reports and closes its own half. The other half is the
// caller's to close: a connection that we reset, or leave with unread data, might lose the report.
func (s *Listening) answerStream(listening int, port uint16) {
	fd, remote, err := unix.Accept4(listening, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return // the caller left the queue
	}
	s.watch(fd, func() {
		var unread [512]byte
		if n, _ := unix.Read(fd, unread[:]); n <= 0 {
			s.drop(fd)
		}
	})
	local, err := unix.Getsockname(fd)
	if err != nil {
		s.t.Errorf("answer as %s: read local address: %v", s.Who, err)
		return
	}
	r := Report{Who: s.Who, Port: port, Local: addrPort(local), Remote: addrPort(remote)}
	r.Original = originalDestination(fd, r.Local.Addr())
	// It fits an empty send buffer. Errors mean that the caller is gone.
	_, _ = unix.Write(fd, r.line())
	_ = unix.Shutdown(fd, unix.SHUT_WR)
}

// answerDatagram reports to the sender of a datagram, from the address that it was sent to.
func (s *Listening) answerDatagram(fd int, port uint16) {
	var data [512]byte
	var control [128]byte
	_, n, _, remote, err := unix.Recvmsg(fd, data[:], control[:], 0)
	if err != nil {
		return // an ICMP error for an earlier answer
	}
	local, source, err := packetInfo(control[:n])
	if err != nil {
		s.t.Errorf("answer as %s: read destination of datagram: %v", s.Who, err)
		return
	}
	r := Report{Who: s.Who, Port: port, Local: netip.AddrPortFrom(local, port),
		Remote: addrPort(remote)}
	if err := unix.Sendmsg(fd, r.line(), source, remote, 0); err != nil {
		s.t.Logf("answer as %s to %v from %v: %v", s.Who, r.Remote, r.Local, err)
	}
}

// packetInfo returns the destination of a received datagram, and the control message that makes it
// an answer's source.
func packetInfo(control []byte) (netip.Addr, []byte, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO:
			addr := [4]byte(m.Data[8:]) // struct in_pktinfo: interface, local address, destination
			return netip.AddrFrom4(addr), unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: addr}), nil
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_PKTINFO:
			addr := [16]byte(m.Data) // struct in6_pktinfo: destination, interface
			return netip.AddrFrom16(addr), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: addr}), nil
		}
	}
	return netip.Addr{}, nil, fmt.Errorf("no packet info among %d control messages", len(messages))
}
