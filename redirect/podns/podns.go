// Package podns is the one way into a pod's network namespace: it opens namespaces by their paths,
// refuses the host's, tells them apart, and calls functions in them.
//
//	host, err := podns.FindHost("/proc", "the agent")
//	n, err := host.Open("/run/netns/cni-5d1c")
//	defer n.Close()
//	err = n.Do(func() error { return program(ctx, rules) })
//
// A network namespace is a property of a thread. Do moves the caller's own thread there and back,
// which is a quarter of a millisecond cheaper than another one; DoOn leaves it to its caller which
// thread is moved, for who must not lose his own and for what needs another root directory.
//
// Be aware:
//   - Goroutines that a function starts in a namespace are not in it.
//   - A file that was opened before stays that of the namespace it was opened in; /proc/self is of
//     the process, /proc/thread-self of the thread.
//   - A path may come to lead to another namespace, and an inode's number is used again once a
//     namespace is gone. Who has a Namespace open keeps it from going.
//   - To enter takes CAP_SYS_ADMIN, and the same in the user namespace of the owner if that is
//     another; to open what is in /proc of another process, CAP_SYS_PTRACE.
package podns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// ownNetns is this thread's: none that runs freely is anywhere else.
const ownNetns = "/proc/thread-self/ns/net"

// ID tells namespaces apart that exist at the same time.
type ID struct {
	Device, Inode uint64 // as stat(2) reports them
}

// Identify returns the ID of the namespace at a path, without opening it.
func Identify(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return ID{st.Dev, st.Ino}, nil
}

// Host are the namespaces that nobody enters: the one that this program runs in, and that of the
// host's first process. A program in a container of its own is in another one than that.
type Host struct {
	// Unknown says why the first process' is not known; nil if it is. Then whoever opens a
	// namespace has to know otherwise that it is no host's.
	Unknown error

	self       string
	own, first ID
}

// FindHost finds them. proc is where the host's /proc is, "" if it is nowhere; self is what this
// program is called in errors, such as "the agent".
func FindHost(proc, self string) (Host, error) {
	h := Host{self: self}
	var err error
	if h.own, err = Identify(ownNetns); err != nil {
		return h, fmt.Errorf("identify own network namespace: %w", err)
	}
	if proc == "" {
		h.Unknown = errors.New("the host's /proc is not mounted")
		return h, nil
	}
	h.first, h.Unknown = Identify(filepath.Join(proc, "1/ns/net"))
	return h, nil
}

// Has reports whether a namespace is one of them.
func (h Host) Has(id ID) bool { return h.refuse(id) != nil }

func (h Host) refuse(id ID) error {
	switch id {
	case h.own:
		return fmt.Errorf("%w: %s runs in it", ErrHost, h.self)
	case h.first:
		return fmt.Errorf("%w: process 1 runs in it", ErrHost)
	}
	return nil
}

// The errors of Open, beside the kernel's.
var (
	ErrHost         = errors.New("it is the host's")
	ErrNotNamespace = errors.New("it is no namespace")
	ErrNotNetwork   = errors.New("it is a namespace, but no network namespace")
)

// Namespace is an open network namespace.
type Namespace struct {
	ID     ID // valid until Close: then another namespace may get it
	opened ns.NetNS
}

// Open opens the namespace at a path, unless it is one of the host's.
func (h Host) Open(path string) (*Namespace, error) {
	n, err := open(path)
	if err == nil {
		if err = h.refuse(n.ID); err != nil {
			n.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace %q: %w", path, err)
	}
	return n, nil
}

func open(path string) (*Namespace, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil { // the library says this in a text only
		return nil, err
	}
	opened, err := ns.GetNS(path)
	if _, ok := errors.AsType[ns.NSPathNotNSErr](err); ok {
		return nil, ErrNotNamespace
	}
	if err != nil {
		return nil, err
	}
	// ENOTTY is of Linux before 4.11, which does not say of what kind it is.
	kind, err := unix.IoctlRetInt(int(opened.Fd()), unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		_ = opened.Close()
		return nil, ErrNotNetwork
	}
	if err := unix.Fstat(int(opened.Fd()), &st); err != nil {
		_ = opened.Close()
		return nil, fmt.Errorf("read its inode: %w", err)
	}
	return &Namespace{ID{st.Dev, st.Ino}, opened}, nil
}

// Close lets the namespace go when nobody else has it.
func (n *Namespace) Close() { _ = n.opened.Close() } // it was only looked into

// Foreign reports whether the namespace belongs to another user namespace than ours. Rules of
// iptables that match owners are refused there.
func (n *Namespace) Foreign() bool { return foreign(n.opened) }

// Owner is the user namespace that the namespace belongs to, in whose ids its rules are.
func (n *Namespace) Owner() (ID, error) {
	owner, err := unix.IoctlRetInt(int(n.opened.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return ID{}, fmt.Errorf("read its user namespace: %w", err)
	}
	defer unix.Close(owner)
	var st unix.Stat_t
	if err := unix.Fstat(owner, &st); err != nil {
		return ID{}, fmt.Errorf("read its user namespace: %w", err)
	}
	return ID{st.Dev, st.Ino}, nil
}

// Foreign reports the same of the namespace that the calling thread is in.
func Foreign() bool {
	here, err := ns.GetCurrentNS()
	if err != nil {
		return false
	}
	defer func() { _ = here.Close() }()
	return foreign(here)
}

// foreign asks for the owner (NS_GET_USERNS, ioctl_ns(2)). If the kernel does not let us see it, it
// is none of ours.
func foreign(opened ns.NetNS) bool {
	owner, err := unix.IoctlRetInt(int(opened.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return errors.Is(err, unix.EPERM)
	}
	defer unix.Close(owner)
	var theirs, ours unix.Stat_t
	if unix.Fstat(owner, &theirs) != nil || unix.Stat("/proc/thread-self/ns/user", &ours) != nil {
		return false
	}
	return theirs.Dev != ours.Dev || theirs.Ino != ours.Ino
}
