package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// Of linux/inet_diag.h and linux/tcp.h.
const (
	requestLen = 56 // struct inet_diag_req_v2
	answerLen  = 72 // struct inet_diag_msg
	idOffset   = 8  // of struct inet_diag_sockid in the request
	uidOffset  = 64 // in the answer

	attrV6Only  = 11 // INET_DIAG_SKV6ONLY
	attrOptions = 22 // INET_DIAG_SOCKOPT

	// A bit field's first is the lowest bit on the machines that this is built for.
	optionTransparent = 1 << 5

	stateListen = 1 << 10
	stateClose  = 1 << 7 // that of a UDP socket without a peer
)

// noCookie stands for any socket with the addresses that are asked for.
const noCookie = ^uint64(0)

// Reader asks about the sockets of one namespace. It serves one goroutine.
type Reader struct{ wire *wire.Socket }

// Open returns a reader for the namespace of the calling thread. It stays with that namespace,
// whatever thread reads.
func Open() (*Reader, error) {
	s, err := wire.Dial(unix.NETLINK_SOCK_DIAG)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, missing(redirect.TCP)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for sockets: %w", err)
	}
	return &Reader{s}, nil
}

// Close ends it.
func (r *Reader) Close() { r.wire.Close() }

// Receivers lists the listening sockets of TCP, or the bound ones of UDP, of both families. The
// error of a kernel that cannot tell is a *ModuleError.
func (r *Reader) Receivers(p redirect.Protocol) ([]Socket, error) {
	states := uint32(stateListen)
	if p == redirect.UDP {
		states = stateClose
	}
	var all []Socket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		objects, err := r.wire.Dump(request(family, p, states))
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil, missing(p)
		case errors.Is(err, wire.ErrTooMuch):
			return nil, fmt.Errorf("there are more sockets of %s than any pod needs, so they are "+
				"not read: find out which process opens so many", p)
		case err != nil:
			return nil, fmt.Errorf("list sockets of %s: %w", p, err)
		}
		for _, o := range objects {
			if port := binary.BigEndian.Uint16(o.Header[4:]); port != 0 {
				all = append(all, read(o, p))
			}
		}
	}
	return all, nil
}

// Find returns the socket that sends from local to remote: of TCP the one that has the connection,
// of UDP the one that an answer arrives at. There is none, or none that the kernel still knows an
// owner of, if ok is false.
func (r *Reader) Find(p redirect.Protocol, local, remote netip.AddrPort) (s Socket, ok bool,
	err error) {
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	m := request(family, p, ^uint32(0))
	from, to := local, remote
	if p == redirect.UDP { // udp_diag reads them as those of the packet that arrives
		from, to = remote, local
	}
	id := m.Header[idOffset:]
	binary.BigEndian.PutUint16(id, from.Port())
	binary.BigEndian.PutUint16(id[2:], to.Port())
	copy(id[4:20], from.Addr().AsSlice())
	copy(id[20:36], to.Addr().AsSlice())
	o, err := r.wire.Get(m)
	if errors.Is(err, unix.ENOENT) {
		return Socket{}, false, nil
	}
	if err != nil {
		return Socket{}, false, fmt.Errorf("find the socket of %s: %w", local, err)
	}
	s = read(o, p)
	if s.Inode == 0 { // it is about to end, or only begins: its owner is not said
		return Socket{}, false, nil
	}
	peer := endpoint(o.Header, 6, 24)
	if p == redirect.UDP && peer.Port() == 0 {
		return s, s.Local.Port() == local.Port(), nil
	}
	// Without such a connection the kernel answers with who would receive it.
	return s, same(s.Local, local) && same(peer, remote), nil
}

func same(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && a.Addr().Unmap() == b.Addr().Unmap()
}

func request(family byte, p redirect.Protocol, states uint32) wire.Message {
	header := make([]byte, requestLen)
	header[0], header[1] = family, byte(p)
	binary.NativeEndian.PutUint32(header[4:], states)
	binary.NativeEndian.PutUint64(header[requestLen-8:], noCookie)
	return wire.Message{Type: unix.SOCK_DIAG_BY_FAMILY, Header: header, ObjectHeader: answerLen}
}

func read(o wire.Object, p redirect.Protocol) Socket {
	s := Socket{
		Protocol: p.String(),
		Local:    endpoint(o.Header, 4, 8),
		UID:      binary.NativeEndian.Uint32(o.Header[uidOffset:]),
		Inode:    binary.NativeEndian.Uint32(o.Header[uidOffset+4:]),
	}
	if v6only := wire.Find(o.Attrs, attrV6Only); len(v6only) > 0 {
		s.V6Only = v6only[0] != 0
	}
	if options := wire.Find(o.Attrs, attrOptions); len(options) > 0 {
		s.Transparent = new(options[0]&optionTransparent != 0)
	}
	return s
}

// endpoint reads a port and an address at their places in an answer.
func endpoint(header []byte, port, addr int) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(header[addr:]))
	if header[0] == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(header[addr:]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(header[port:]))
}
