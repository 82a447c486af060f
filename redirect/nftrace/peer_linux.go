package nftrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// The ports that a peer sends from: those that Linux has for clients.
const (
	firstClientPort = 32768
	clientPorts     = 28232
)

// fromPeer gets ready what comes in at the pod from the node's end of its interface.
func fromPeer(r Request, nodes []*os.File) (*sender, error) {
	p := r.Packet
	u, err := findUplink(p.In, nodes)
	if err != nil {
		return nil, err
	}
	var fd int
	err = inNamespace(u.node, func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if errors.Is(err, unix.EPERM) {
		return fromNode(r, u)
	}
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	source := netip.AddrPortFrom(p.Source.Addr(),
		uint16(firstClientPort+rand.IntN(clientPorts)))
	s := &sender{tuple: tuple{p.Protocol, source, p.Destination}, in: p.In,
		close: func() { _ = unix.Close(fd) }}
	s.send = func() error { return u.send(fd, frame(u.pod.mac, s.tuple)) }
	return s, nil
}

// fromNode gets ready what the node itself sends to the pod, for a program that may not send
// frames: it comes from the node's address, by the node's routes, as a probe of the kubelet does.
func fromNode(r Request, u uplink) (*sender, error) {
	r.Packet.Source = netip.AddrPort{}
	var s *sender
	err := inNamespace(u.node, func() error {
		var err error
		s, err = r.open(u.index)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("send from the node: %w", err)
	}
	s.in = r.Packet.In
	return s, nil
}

// send puts a frame on the cable. Nothing of the node's traffic control is asked about it, for it
// is the pod's rules that are in question.
func (u uplink) send(fd int, data []byte) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("pass by the traffic control: %w", err)
	}
	if err := unix.Sendto(fd, data, 0, &unix.SockaddrLinklayer{Ifindex: int(u.index)}); err != nil {
		return fmt.Errorf("send from the node's end of %s: %w", u.pod.name, err)
	}
	return nil
}

// localMAC is whom a frame comes from: an address that no manufacturer gives away.
var localMAC = []byte{0x02, 0, 0, 0, 0, 1}

// frame is the packet that begins a connection, or an empty datagram.
func frame(to []byte, t tuple) []byte {
	var segment []byte
	segment = binary.BigEndian.AppendUint16(segment, t.source.Port())
	segment = binary.BigEndian.AppendUint16(segment, t.destination.Port())
	sumAt := 6
	if t.protocol == redirect.UDP {
		segment = binary.BigEndian.AppendUint16(segment, 8)
		segment = append(segment, 0, 0)
	} else {
		sumAt = 16
		segment = binary.BigEndian.AppendUint32(segment, rand.Uint32()) // where counting begins
		segment = append(segment, 0, 0, 0, 0)                           // nothing acknowledged
		const words, syn = 5 << 4, 0x02
		segment = append(segment, words, syn)
		segment = binary.BigEndian.AppendUint16(segment, 65535) // the window
		segment = append(segment, 0, 0, 0, 0)
	}
	source, destination := t.source.Addr().AsSlice(), t.destination.Addr().AsSlice()
	pseudo := append(append(append([]byte{}, source...), destination...), 0, byte(t.protocol))
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(segment)))
	binary.BigEndian.PutUint16(segment[sumAt:], checksum(append(pseudo, segment...)))

	data := append(append([]byte{}, to...), localMAC...)
	const hops = 64
	if t.source.Addr().Is6() {
		data = binary.BigEndian.AppendUint16(data, unix.ETH_P_IPV6)
		data = append(data, 6<<4, 0, 0, 0)
		data = binary.BigEndian.AppendUint16(data, uint16(len(segment)))
		data = append(data, byte(t.protocol), hops)
		return append(append(append(data, source...), destination...), segment...)
	}
	const version, headerLen = 4 << 4, 20
	header := []byte{version | headerLen/4, 0}
	header = binary.BigEndian.AppendUint16(header, uint16(headerLen+len(segment)))
	header = append(header, 0, 0, 0, 0, hops, byte(t.protocol), 0, 0)
	header = append(append(header, source...), destination...)
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	data = binary.BigEndian.AppendUint16(data, unix.ETH_P_IP)
	return append(append(data, header...), segment...)
}

// checksum is that of IP, TCP and UDP (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		if i+1 < len(data) {
			sum += uint32(data[i])<<8 | uint32(data[i+1])
		} else {
			sum += uint32(data[i]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if sum == 0xffff { // in UDP zero says that there is none
		return 0xffff
	}
	return ^uint16(sum)
}
