package watch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// eventSocket is where the kernel sends events to. Nobody waits for it on a thread.
type eventSocket struct {
	file  *os.File
	conn  syscall.RawConn
	drops uint32 // by the kernel, so far
}

func listen(buffer int) (*eventSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	s := &eventSocket{file: os.NewFile(uintptr(fd), "events")}
	if err := s.join(fd, buffer); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

func (s *eventSocket) join(fd, buffer int) (err error) {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink: %w", err)
	}
	// Past the system's limit where that is allowed.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	for _, group := range []int{unix.NFNLGRP_CONNTRACK_NEW, unix.NFNLGRP_CONNTRACK_UPDATE,
		unix.NFNLGRP_CONNTRACK_DESTROY} {
		err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("it takes CAP_NET_ADMIN in the pod's network namespace: %w", err)
		}
		if err != nil {
			return fmt.Errorf("join a group of netlink: %w", err)
		}
	}
	s.conn, err = s.file.SyscallConn()
	return err
}

// receive waits for a datagram. unix.ENOBUFS says that some were dropped.
func (s *eventSocket) receive(buf []byte) ([]byte, error) {
	var n int
	var err error
	waiting := s.conn.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if waiting != nil {
		return nil, waiting
	}
	return buf[:max(n, 0)], err
}

// dropped is how many events the kernel could not put into the buffer since it was last asked.
func (s *eventSocket) dropped() uint64 {
	var drops uint32
	_ = s.conn.Control(func(fd uintptr) {
		// The ninth number of SO_MEMINFO (SK_MEMINFO_DROPS). x/sys has no call of its own for it;
		// this structure has another number at that place.
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_SOCKET, unix.SO_MEMINFO)
		if err == nil {
			drops = info.Lost
		}
	})
	n := drops - s.drops
	s.drops = drops
	return uint64(n)
}
