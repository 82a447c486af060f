// Package wire talks netlink to the kernel: requests in, answers out, over a socket in the network
// namespace of the calling thread.
//
//	s, err := wire.Dial(unix.NETLINK_ROUTE)
//	answers, err := s.Exchange([]wire.Message{{Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_ACK, Header: h, Attrs: a}})
//
// The socket is blocking and has no poller, since the kernel answers within the call. That of
// mdlayher/netlink, on which google/nftables stands, is kept with Go's poller: on a thread that is
// locked to a pod's namespace, each answer costs it a switch of threads. BenchmarkSocket compares
// the two in one run; on two cores and Linux 6.18 it measured, the socket's opening and closing
// included, 23 and 89 µs for a request, 44 and 223 µs for ten in a datagram, 55 and 118 µs for a
// list. What the kernel itself takes for a pod's rules comes on top of both, and is more.
//
// Be aware: a socket serves one goroutine.
package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Message is one request.
type Message struct {
	Type   uint16              // of the family: unix.RTM_*, or NFTables and unix.NFT_MSG_*
	Flags  uint16              // beside NLM_F_REQUEST
	Header []byte              // of the protocol's family
	Attrs  []netlink.Attribute // follow the header; nil: none
	// Length of the header of the Objects that are answered; 0: that of Header.
	ObjectHeader int
}

func (m Message) objectHeader() int { return cmp.Or(m.ObjectHeader, len(m.Header)) }

// Answer is what the kernel said to one message.
type Answer struct {
	Heard bool  // it answers what failed and, if asked by NLM_F_ACK, what was done
	Err   error // wraps a unix.Errno; nil: done, or not Heard
}

// Socket is a connection to one of netlink's families.
type Socket struct {
	fd  int
	seq uint32
	buf []byte // what came last
}

const (
	receiveLen = 64 << 10 // the kernel fills 32 KiB at most
	// takes the longest lists in one transaction; netlink refuses what does not fit
	sendBuffer = 16 << 20
	// TypeMask leaves out the flags that an attribute's type carries.
	TypeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// NFTables is what a kind of nftables' messages, one of unix.NFT_MSG_*, is a Message's type with.
const NFTables = unix.NFNL_SUBSYS_NFTABLES << 8

// Dial opens a socket of a family, such as unix.NETLINK_ROUTE.
func Dial(family int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind netlink: %w", err)
	}
	// The answers to what was refused name the attribute; a kernel that cannot do that gives
	// numbers only.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return &Socket{fd: fd, buf: make([]byte, receiveLen)}, nil
}

// Close ends the connection.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// Exchange sends messages in one datagram, which the kernel handles in their order, and returns its
// answer to each.
func (s *Socket) Exchange(messages []Message) ([]Answer, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	first := s.seq + 1
	if err := s.send(messages); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(messages))
	for { // all that the kernel has to say is there when the sending returns
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return answers, nil
		}
		if err != nil {
			return nil, fmt.Errorf("receive from netlink: %w", err)
		}
		err = Each(s.buf[:n], func(h unix.NlMsghdr, data []byte) error {
			i := h.Seq - first
			if h.Type != unix.NLMSG_ERROR || int(i) >= len(answers) {
				return nil
			}
			answers[i].Heard = true
			if err := answer(h, data); err != nil && answers[i].Err == nil {
				answers[i].Err = err
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// Get asks for one object. The error of one that is not there wraps a unix.Errno, which one depends
// on the family.
func (s *Socket) Get(m Message) (Object, error) {
	if err := s.send([]Message{m}); err != nil {
		return Object{}, err
	}
	n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT)
	if err != nil {
		return Object{}, fmt.Errorf("receive from netlink: %w", err)
	}
	var found Object
	err = Each(s.buf[:n], func(h unix.NlMsghdr, data []byte) error {
		if h.Type == unix.NLMSG_ERROR {
			return answer(h, data)
		}
		found, err = object(data, m.objectHeader())
		return err
	})
	return found, err
}

// object reads one that has a header of a length. It shares nothing with data.
func object(data []byte, header int) (Object, error) {
	if len(data) < header {
		return Object{}, unix.EBADMSG
	}
	data = bytes.Clone(data)
	attrs, err := netlink.UnmarshalAttributes(data[header:])
	return Object{Header: data[:header], Attrs: attrs}, err
}

func (s *Socket) send(messages []Message) error {
	var buf []byte
	for _, m := range messages {
		attrs, err := netlink.MarshalAttributes(m.Attrs)
		if err != nil {
			return err
		}
		s.seq++
		buf = binary.NativeEndian.AppendUint32(buf,
			uint32(unix.NLMSG_HDRLEN+len(m.Header)+len(attrs)))
		buf = binary.NativeEndian.AppendUint16(buf, m.Type)
		buf = binary.NativeEndian.AppendUint16(buf, m.Flags|unix.NLM_F_REQUEST)
		buf = binary.NativeEndian.AppendUint32(buf, s.seq)
		buf = binary.NativeEndian.AppendUint32(buf, 0)
		buf = append(append(buf, m.Header...), attrs...)
	}
	if len(buf) > receiveLen {
		s.widen()
	}
	if err := unix.Sendto(s.fd, buf, 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to netlink: %w", err)
	}
	return nil
}

// widen makes room for a long transaction, past the system's limit where that is allowed.
func (s *Socket) widen() {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	}
}

// answer reads an acknowledgement: a number, and with an error perhaps the kernel's own words.
func answer(h unix.NlMsghdr, data []byte) error {
	if len(data) < 4 {
		return unix.EBADMSG
	}
	code := int32(binary.NativeEndian.Uint32(data))
	if code == 0 {
		return nil
	}
	errno := unix.Errno(-code)
	if h.Flags&unix.NLM_F_ACK_TLVS == 0 || h.Flags&unix.NLM_F_CAPPED == 0 {
		return errno
	}
	attrs, err := netlink.UnmarshalAttributes(data[min(len(data), 4+unix.NLMSG_HDRLEN):])
	if err != nil {
		return errno
	}
	for _, a := range attrs {
		if a.Type&TypeMask == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w (%s)", errno, bytes.TrimRight(a.Data, "\x00"))
		}
	}
	return errno
}

// Object is one of a list: the header of the protocol's family, and what it says beside.
type Object struct {
	Header []byte              // as long as the Message that asked says
	Attrs  []netlink.Attribute // read with Find: a type may carry flags
}

// Find returns the value of an attribute, nil if it is not there.
func Find(attrs []netlink.Attribute, kind uint16) []byte {
	for _, a := range attrs {
		if a.Type&TypeMask == kind {
			return a.Data
		}
	}
	return nil
}

// Text reads what the kernel ends with a zero.
func Text(data []byte) string {
	before, _, _ := bytes.Cut(data, []byte{0})
	return string(before)
}

// What a list may come to. Whoever may write rules into a namespace decides how long its lists are;
// those of the dearest pod have 10,240 rules, of up to 1 KB each where iptables wrote them.
const (
	maxObjects = 16 << 10
	maxBytes   = 16 << 20
)

// ErrTooMuch is the error of a list that is longer than any that we write.
var ErrTooMuch = errors.New("there is more of it than anybody needs, so it is not read: find out " +
	"who writes so many rules there")

// Dump asks for the list of all objects of a kind. One that changed meanwhile is read again.
func (s *Socket) Dump(m Message) ([]Object, error) {
	const tries = 5
	for range tries {
		objects, interrupted, err := s.dumpOnce(m)
		if err != nil {
			return nil, err
		}
		if !interrupted {
			return objects, nil
		}
	}
	return nil, errors.New("what netlink lists changed while it was read, again and again")
}

func (s *Socket) dumpOnce(m Message) (objects []Object, interrupted bool, err error) {
	m.Flags |= unix.NLM_F_DUMP
	if err := s.send([]Message{m}); err != nil {
		return nil, false, err
	}
	bytesRead, tooMuch := 0, false
	for done := false; !done; {
		n, _, err := unix.Recvfrom(s.fd, s.buf, 0)
		if err != nil {
			return nil, false, fmt.Errorf("receive from netlink: %w", err)
		}
		if bytesRead += n; bytesRead > maxBytes || len(objects) > maxObjects {
			// The rest is received all the same, so that the socket can be used again.
			objects, tooMuch = nil, true
		}
		err = Each(s.buf[:n], func(h unix.NlMsghdr, data []byte) error {
			interrupted = interrupted || h.Flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case h.Type == unix.NLMSG_DONE, h.Type == unix.NLMSG_ERROR:
				done = true
				return answer(h, data)
			case tooMuch:
				return nil
			}
			one, err := object(data, m.objectHeader())
			objects = append(objects, one)
			return err
		})
		if err != nil {
			return nil, false, err
		}
	}
	if tooMuch {
		return nil, false, ErrTooMuch
	}
	return objects, interrupted, nil
}

// Each calls f with the messages of a datagram, until it returns an error.
func Each(buf []byte, f func(unix.NlMsghdr, []byte) error) error {
	for len(buf) >= unix.NLMSG_HDRLEN {
		h := unix.NlMsghdr{
			Len:   binary.NativeEndian.Uint32(buf),
			Type:  binary.NativeEndian.Uint16(buf[4:]),
			Flags: binary.NativeEndian.Uint16(buf[6:]),
			Seq:   binary.NativeEndian.Uint32(buf[8:]),
		}
		if h.Len < unix.NLMSG_HDRLEN || int(h.Len) > len(buf) {
			return unix.EBADMSG
		}
		if err := f(h, buf[unix.NLMSG_HDRLEN:h.Len]); err != nil {
			return err
		}
		buf = buf[min(len(buf), int(h.Len+3)&^3):]
	}
	return nil
}
