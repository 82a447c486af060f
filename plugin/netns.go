package main

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
)

// sandbox is a pod's network namespace, open.
type sandbox struct {
	ns ns.NetNS
	id record.Netns
}

// Where to see which network namespace is the host's: the plugin runs there, and so does the first
// process of the host. A plugin in a container sees its own first process, or none.
const (
	ownNetns   = "/proc/thread-self/ns/net"
	firstNetns = "/proc/1/ns/net"
)

// errHostNetns is a namespace that nothing may be written to.
var errHostNetns = errors.New("it is the host's")

// openSandbox opens the namespace at a path, unless it is the host's.
func openSandbox(path string) (*sandbox, error) {
	opened, err := ns.GetNS(path)
	if err != nil {
		return nil, badNetns.fail("open network namespace %q: %w", path, err)
	}
	n := &sandbox{ns: opened, id: record.Netns{Path: path}}
	if err := n.identify(); err != nil {
		n.close()
		return nil, badNetns.fail("open network namespace %q: %w", path, err)
	}
	return n, nil
}

func (n *sandbox) identify() error {
	var have, own, first unix.Stat_t
	if err := unix.Fstat(int(n.ns.Fd()), &have); err != nil {
		return fmt.Errorf("read its inode: %w", err)
	}
	if err := unix.Stat(ownNetns, &own); err != nil {
		return fmt.Errorf("read %s: %w", ownNetns, err)
	}
	if same(have, own) {
		return fmt.Errorf("%w: the plugin runs in it", errHostNetns)
	}
	if err := unix.Stat(firstNetns, &first); err == nil && same(have, first) {
		return fmt.Errorf("%w: process 1 runs in it", errHostNetns)
	}
	n.id.Device, n.id.Inode = have.Dev, have.Ino
	return nil
}

func (n *sandbox) close() { _ = n.ns.Close() } // it was only looked into

func same(a, b unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// foreign reports whether the namespace belongs to another user namespace than ours. If the kernel
// does not let us see the owner (NS_GET_USERNS, ioctl_ns(2)), it is none of ours.
func (n *sandbox) foreign() bool {
	owner, err := unix.IoctlRetInt(int(n.ns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return errors.Is(err, unix.EPERM)
	}
	defer unix.Close(owner)
	var theirs, ours unix.Stat_t
	if unix.Fstat(owner, &theirs) != nil || unix.Stat("/proc/thread-self/ns/user", &ours) != nil {
		return false
	}
	return !same(theirs, ours)
}
