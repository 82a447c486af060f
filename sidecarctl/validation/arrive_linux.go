package validation

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// arriving is a connection that was accepted, and of which attempt it is will show.
type arriving struct {
	fd int // below 0: closed
	at netip.AddrPort
}

func (c *arriving) close() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	c.fd = -1
}

func (t *trial) accept(listening int, at netip.AddrPort) {
	fd, _, err := unix.Accept4(listening, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err == nil { // else the caller is gone
		t.arriving = append(t.arriving, &arriving{fd, at})
	}
}

// recognize finds the attempt by the question. The address that it comes from says less: address
// translation may give it another port.
func (t *trial) recognize(c *arriving) {
	defer c.close()
	var data [512]byte
	n, err := unix.Read(c.fd, data[:])
	if err != nil {
		return
	}
	for i, a := range t.attempts {
		if a.Protocol == protocolTCP && bytes.Equal(data[:n], t.question(i)) {
			a.arrived, a.original = c.at, originalDestination(c.fd, c.at.Addr())
		}
	}
}

// originalDestination is what the connection was meant for, as connection tracking says; not valid
// where it does not know.
func originalDestination(fd int, at netip.Addr) netip.AddrPort {
	const soOriginalDst = 80 // of netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST
	if at.Is4() {
		// An ip_mreq of IPv6 is as long as a sockaddr_in, with four bytes to spare.
		m, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, soOriginalDst)
		if err != nil {
			return netip.AddrPort{}
		}
		address := [4]byte(m.Multiaddr[4:8])
		port := binary.BigEndian.Uint16(m.Multiaddr[2:])
		return netip.AddrPortFrom(netip.AddrFrom4(address), port)
	}
	m, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}
	}
	port := binary.NativeEndian.AppendUint16(nil, m.Addr.Port) // it is as it was on the wire
	return netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), binary.BigEndian.Uint16(port))
}

// question is a query of the name service that nobody has an answer to (RFC 2606), by the number of
// its attempt.
func (t *trial) question(attempt int) []byte {
	query := binary.BigEndian.AppendUint16(nil, uint16(attempt))
	query = append(query, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0) // recursion desired, one question
	for _, label := range []string{t.token, strconv.Itoa(attempt), "invalid"} {
		query = append(append(query, byte(len(label))), label...)
	}
	const typeA, classIN = 1, 1
	return append(query, 0, 0, typeA, 0, classIN)
}

// answer takes a question and sends it back.
func (t *trial) answer(listening int, at netip.AddrPort) {
	var data [512]byte
	n, remote, err := unix.Recvfrom(listening, data[:], 0)
	if err != nil {
		return
	}
	for i, a := range t.attempts {
		if a.Protocol == protocolUDP && bytes.Equal(data[:n], t.question(i)) {
			a.arrived = at
			// What is lost here shows as a question without an answer.
			_ = unix.Sendto(listening, data[:n], 0, remote)
		}
	}
}

func (a *trying) receive() {
	var data [512]byte
	_, from, err := unix.Recvfrom(a.fd, data[:], 0)
	if err != nil {
		a.err = err
		return
	}
	a.answered = addrPort(from)
}

// ok reports whether an attempt ended where it should, and was known there for what it is.
func (a *trying) ok() bool {
	if a.err != nil || a.arrived != a.want.at || a.answered != a.want.answer {
		return false
	}
	redirected := a.want.at != a.To
	return a.Protocol == protocolUDP || a.original == a.To ||
		!redirected && !a.original.IsValid()
}

// words say what became of an attempt that did not end where it should.
func (a *trying) words() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case !a.arrived.IsValid() && a.answered.IsValid():
		return fmt.Sprintf("somebody else answers, from %s", a.answered)
	case !a.arrived.IsValid() && a.asked:
		return "somebody else gets it"
	case !a.arrived.IsValid():
		return "it arrives at none of the ports that were listened on"
	case a.Protocol == protocolTCP && a.arrived == a.want.at && !a.original.IsValid():
		return "it arrives, and the kernel does not say what it was meant for"
	case a.Protocol == protocolTCP && a.arrived == a.want.at:
		return fmt.Sprintf("it arrives as meant for %s", a.original)
	case a.Protocol == protocolUDP && !a.answered.IsValid():
		return fmt.Sprintf("arrives at %s, and is not answered", a.arrived)
	}
	return landing{at: a.arrived, answer: a.answered}.String()
}
