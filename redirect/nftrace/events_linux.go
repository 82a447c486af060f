package nftrace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/wire"
)

// reports are the kernel's about packets that are traced in a namespace.
type reports struct {
	file *os.File
	buf  []byte
	lost uint64 // reports that found no room, as far as the kernel has counted them
}

// What waits to be read, at most. A report has some hundred bytes, a packet some tens of reports.
const reportsBuffer = 4 << 20

// listen opens the reports of the namespace of the calling thread. They can be read by any thread.
// As many bytes of them as buffer says wait to be read.
func listen(buffer int) (*reports, error) {
	fd, err := unix.Socket(unix.AF_NETLINK,
		unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, ErrNoNFTables
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP,
			unix.NFNLGRP_NFTRACE)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("join the reports of nftables: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	return &reports{file: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, 64<<10)}, nil
}

func (r *reports) close() { _ = r.file.Close() }

// each calls f with what is reported, until f says that it is enough, or ctx ends. What was
// reported before a deadline is among it, even if this process had no time to read it by then.
func (r *reports) each(ctx context.Context, f func(event) (enough bool, err error)) error {
	longAgo := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = r.file.SetReadDeadline(longAgo) })
	defer stop()
	for {
		n, err := r.file.Read(r.buf)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			r.count()
			continue
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return r.rest(ctx, f)
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read the reports of nftables: %w", err)
		}
		if enough, err := tell(r.buf[:n], f); enough || err != nil {
			return err
		}
	}
}

// mostRest is how many datagrams are read after the deadline: far more than a packet has reports,
// and not without end where others send, too.
const mostRest = 10_000

// rest calls f with what waits to be read.
func (r *reports) rest(ctx context.Context, f func(event) (enough bool, err error)) error {
	conn, err := r.file.SyscallConn()
	if err != nil {
		return err
	}
	for range mostRest {
		var n int
		var failed error
		err := conn.Control(func(fd uintptr) { n, failed = unix.Read(int(fd), r.buf) })
		switch {
		case err != nil:
			return err
		case errors.Is(failed, unix.ENOBUFS):
			r.count()
			continue
		case errors.Is(failed, unix.EINTR):
			continue
		case failed != nil: // nothing is left
			return ctx.Err()
		}
		if enough, err := tell(r.buf[:n], f); enough || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// tell calls f with the reports in a datagram.
func tell(datagram []byte, f func(event) (enough bool, err error)) (enough bool, err error) {
	messages, err := parse(datagram)
	if err != nil {
		return false, err
	}
	for _, m := range messages {
		e, ok := newEvent(m)
		if !ok {
			continue
		}
		if enough, err := f(e); enough || err != nil {
			return enough, err
		}
	}
	return false, nil
}

// parse reads the messages of a datagram.
func parse(datagram []byte) ([]netlink.Message, error) {
	var all []netlink.Message
	for len(datagram) >= unix.NLMSG_HDRLEN {
		length := int(nativeUint32(datagram))
		if length < unix.NLMSG_HDRLEN || length > len(datagram) {
			return nil, errors.New("read the reports of nftables: a message is cut off")
		}
		var m netlink.Message
		aligned := make([]byte, (length+3)&^3)
		copy(aligned, datagram[:length])
		if err := m.UnmarshalBinary(aligned); err != nil {
			return nil, fmt.Errorf("read the reports of nftables: %w", err)
		}
		all = append(all, m)
		datagram = datagram[min(len(datagram), (length+3)&^3):]
	}
	return all, nil
}

// memInfoDrops is the place of the count of drops in what SO_MEMINFO says (linux/sock_diag.h).
const memInfoDrops = 8

// count asks the kernel how many reports found no room.
func (r *reports) count() {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	counted := false
	_ = raw.Control(func(fd uintptr) {
		info := make([]byte, 4*(memInfoDrops+1))
		if wire.Getsockopt(int(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, info) == nil {
			r.lost, counted = uint64(nativeUint32(info[4*memInfoDrops:])), true
		}
	})
	if !counted {
		r.lost++
	}
}
