package repair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
)

const (
	ownNetns  = "/proc/thread-self/ns/net" // this thread's: none that runs freely is anywhere else
	ownUserns = "/proc/thread-self/ns/user"
)

// An inode tells namespaces apart.
type inode struct{ device, number uint64 }

func inodeOf(n record.Netns) inode { return inode{n.Device, n.Inode} }

// hostNamespaces are the namespaces that are never entered.
type hostNamespaces struct {
	own   inode
	first inode // of the first process in the host's /proc; zero if that cannot be seen
	why   error // it cannot
}

// readHostNamespaces finds out which namespaces are never entered.
func (r *Repairer) readHostNamespaces() (hostNamespaces, error) {
	var s hostNamespaces
	var err error
	if s.own, err = stat(ownNetns); err != nil {
		return s, fmt.Errorf("tell own network namespace: %w", err)
	}
	if r.cfg.HostProc == "" {
		s.why = errors.New("the host's /proc is not mounted")
		return s, nil
	}
	s.first, s.why = stat(filepath.Join(r.cfg.HostProc, "1/ns/net"))
	return s, nil
}

func (s hostNamespaces) has(id inode) bool { return id == s.own || id == s.first }

func stat(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, explain(&os.PathError{Op: "read", Path: path, Err: err})
	}
	return inode{st.Dev, st.Ino}, nil
}

// explain adds to the kernel's answer what can be done about it.
func explain(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: this needs CAP_SYS_PTRACE, which AppArmor's default profile denies as well", err)
	}
	return err
}

var (
	errHost  = errors.New("it is the host's network namespace or the agent's")
	errNoNet = errors.New("it is no namespace: is the directory mounted without HostToContainer?")
)

// A sandbox is a pod's network namespace, open.
type sandbox struct {
	file *os.File
	id   inode
}

// open opens a namespace, unless it is one that is never entered.
func (s hostNamespaces) open(path string) (*sandbox, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(&os.PathError{Op: "open", Path: path, Err: err})
	}
	n := &sandbox{file: os.NewFile(uintptr(fd), path)}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err = errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err == nil && fs.Type != unix.NSFS_MAGIC {
		err = errNoNet
	}
	n.id = inode{st.Dev, st.Ino}
	if err == nil && s.has(n.id) {
		err = errHost
	}
	if err != nil {
		n.close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return n, nil
}

func (n *sandbox) close() { n.file.Close() }

// foreign reports whether the namespace belongs to another user namespace than ours. If the kernel
// does not let us see the owner (NS_GET_USERNS, ioctl_ns(2)), it is none of ours.
func (n *sandbox) foreign() bool {
	owner, err := unix.IoctlRetInt(int(n.file.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return errors.Is(err, unix.EPERM)
	}
	defer unix.Close(owner)
	var st unix.Stat_t
	ours, err := stat(ownUserns)
	return err == nil && unix.Fstat(owner, &st) == nil && ours != inode{st.Dev, st.Ino}
}

// enter calls do in the namespace, on a thread that comes back from there or ends.
func (n *sandbox) enter(do func() error) error {
	return n.enterBy(func(do func() error) error {
		done := make(chan error, 1)
		go func() { done <- do() }()
		return <-done
	}, do)
}

// enterBy lets by choose the thread.
func (n *sandbox) enterBy(by func(func() error) error, do func() error) error {
	home, err := os.Open(ownNetns)
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer home.Close()
	return by(func() error {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			return fmt.Errorf("enter network namespace: %w", err)
		}
		err := guard(do)
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			return errors.Join(err, fmt.Errorf("leave network namespace: %w", back)) // locked as it is, the thread ends
		}
		runtime.UnlockOSThread()
		return err
	})
}

// guard turns a panic into an error: the thread has to come back.
func guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return do()
}
