package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// wire is a netlink socket to nftables, blocking and without a poller: the kernel answers within the call. The library's
// own connection takes four times as long for the same messages, which every pod would wait for.
type wire struct {
	fd  int
	seq uint32
	buf []byte // what came last
}

// message is one request: kind is one of unix.NFT_MSG_*.
type message struct {
	kind  uint16
	flags uint16
	attrs []netlink.Attribute
}

const (
	subsystem  = unix.NFNL_SUBSYS_NFTABLES << 8
	headerLen  = unix.NLMSG_HDRLEN + nfgenmsgLen
	receiveLen = 64 << 10 // the kernel fills 32 KiB at most
	sendBuffer = 16 << 20 // takes the longest lists in one transaction; netlink refuses what does not fit
)

func dial() (*wire, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind netlink: %w", err)
	}
	// The answers to what was refused name the attribute; a kernel that cannot do that gives numbers only.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return &wire{fd: fd, buf: make([]byte, receiveLen)}, nil
}

func (w *wire) close() { _ = unix.Close(w.fd) }

// append writes one message behind the others.
func (w *wire) append(buf []byte, kind, flags uint16, attrs []netlink.Attribute) ([]byte, error) {
	body, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return nil, err
	}
	w.seq++
	buf = binary.NativeEndian.AppendUint32(buf, uint32(headerLen+len(body)))
	buf = binary.NativeEndian.AppendUint16(buf, kind)
	buf = binary.NativeEndian.AppendUint16(buf, flags|unix.NLM_F_REQUEST)
	buf = binary.NativeEndian.AppendUint32(buf, w.seq)
	buf = binary.NativeEndian.AppendUint32(buf, 0)
	if kind == unix.NFNL_MSG_BATCH_BEGIN || kind == unix.NFNL_MSG_BATCH_END {
		buf = append(buf, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
	} else {
		buf = append(buf, unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0)
	}
	return append(buf, body...), nil
}

// transact sends messages that take effect together or not at all.
func (w *wire) transact(messages []message) error {
	buf, err := w.append(nil, unix.NFNL_MSG_BATCH_BEGIN, 0, nil)
	if err != nil {
		return err
	}
	for i, m := range messages {
		flags := m.flags
		if i == len(messages)-1 {
			flags |= unix.NLM_F_ACK // errors come for every message, success is said once
		}
		if buf, err = w.append(buf, subsystem|m.kind, flags, m.attrs); err != nil {
			return err
		}
	}
	last := w.seq
	if buf, err = w.append(buf, unix.NFNL_MSG_BATCH_END, 0, nil); err != nil {
		return err
	}
	if len(buf) > 64<<10 {
		w.widen()
	}
	if err := unix.Sendto(w.fd, buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to netlink: %w", err)
	}
	return w.answers(last)
}

// widen makes room for a long transaction, past the system's limit where that is allowed.
func (w *wire) widen() {
	if unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil {
		_ = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	}
}

// answers reads what the kernel had to say about a transaction, all of which is there when the sending returns.
func (w *wire) answers(last uint32) error {
	var errs []error
	done := false
	for {
		n, _, err := unix.Recvfrom(w.fd, w.buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return fmt.Errorf("receive from netlink: %w", err)
		}
		err = each(w.buf[:n], func(h unix.NlMsghdr, data []byte) error {
			if h.Type == unix.NLMSG_ERROR {
				err := answer(h, data)
				done = done || err == nil && h.Seq == last
				return err
			}
			return nil
		})
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if !done {
		return errors.New("the kernel did not confirm the transaction")
	}
	return nil
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
		if a.Type&typeMask == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w (%s)", errno, cstring(a.Data))
		}
	}
	return errno
}

// dump calls f with the attributes of every object of a kind. A list that changed meanwhile is read again.
func (w *wire) dump(kind uint16, filter []netlink.Attribute, f func([]netlink.Attribute) error) error {
	const tries = 5
	for range tries {
		var objects [][]netlink.Attribute
		interrupted, err := w.dumpOnce(kind, filter, func(attrs []netlink.Attribute) { objects = append(objects, attrs) })
		if err != nil {
			return err
		}
		if interrupted {
			continue
		}
		for _, attrs := range objects {
			if err := f(attrs); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("the rules changed while they were read, again and again")
}

func (w *wire) dumpOnce(kind uint16, filter []netlink.Attribute, f func([]netlink.Attribute)) (interrupted bool, err error) {
	buf, err := w.append(nil, subsystem|kind, unix.NLM_F_DUMP, filter)
	if err != nil {
		return false, err
	}
	if err := unix.Sendto(w.fd, buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("send to netlink: %w", err)
	}
	for done := false; !done; {
		n, _, err := unix.Recvfrom(w.fd, w.buf, 0)
		if err != nil {
			return false, fmt.Errorf("receive from netlink: %w", err)
		}
		err = each(w.buf[:n], func(h unix.NlMsghdr, data []byte) error {
			interrupted = interrupted || h.Flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case h.Type == unix.NLMSG_DONE, h.Type == unix.NLMSG_ERROR:
				done = true
				return answer(h, data)
			case len(data) < nfgenmsgLen:
				return unix.EBADMSG
			}
			attrs, err := netlink.UnmarshalAttributes(bytes.Clone(data[nfgenmsgLen:]))
			f(attrs)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return interrupted, nil
}

// each calls f with the messages of a datagram.
func each(buf []byte, f func(unix.NlMsghdr, []byte) error) error {
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
