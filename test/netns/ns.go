package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// An NS is a network namespace that exists as long as its test.
type NS struct {
	fd int
	// idOffset is the id, in this process' user namespace, of the namespace owner's root.
	idOffset uint32
}

// RequireRoot skips a test that cannot make namespaces; where CI=true promises that it can, it
// fails.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("network namespaces need root, and CI=true forbids to skip")
	}
	t.Skip("network namespaces need root")
}

// New makes an empty network namespace.
func New(t testing.TB) *NS {
	t.Helper()
	RequireRoot(t)
	n := &NS{}
	visit(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() {
		n.keep(t, "/proc/thread-self/ns/net")
	})
	return n
}

func (n *NS) keep(t testing.TB, path string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open network namespace %s: %v", path, err)
	}
	n.fd = fd
	t.Cleanup(func() { unix.Close(fd) })
}

// Fd returns the namespace's file descriptor, for setns(2) and netlink.
func (n *NS) Fd() int { return n.fd }

// Path returns a path that this process and its children can open while the test runs.
func (n *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// Do calls f on a thread that is in the namespace. Calls may nest.
func (n *NS) Do(t testing.TB, f func()) {
	t.Helper()
	visit(t, func() error { return unix.Setns(n.fd, unix.CLONE_NEWNET) }, f)
}

// visit calls f where enter led the thread, and leads it back. f may end the test.
func visit(t testing.TB, enter func() error, f func()) {
	t.Helper()
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(home)
		err = enter()
	}
	if err != nil {
		runtime.UnlockOSThread()
		t.Fatalf("enter network namespace: %v", err)
	}
	defer func() {
		if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
			// The thread stays locked: the runtime ends it together with the test's goroutine.
			t.Fatalf("leave network namespace: %v", err)
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// RaiseLoopback does what a runtime's loopback plugin does: from now on, processes in the namespace
// reach each other.
func (n *NS) RaiseLoopback(t testing.TB) {
	t.Helper()
	n.Do(t, func() {
		if err := netlink.LinkSetUp(
			&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: loopback}}); err != nil {
			t.Fatalf("raise loopback interface: %v", err)
		}
	})
}

// Sysctl writes a kernel parameter of the namespace; key is its path under /proc/sys, such as
// net/ipv4/ip_forward.
func (n *NS) Sysctl(t testing.TB, key, value string) {
	t.Helper()
	n.Do(t, func() {
		// The kernel shows in /proc/sys/net what belongs to the thread that looks.
		if err := os.WriteFile("/proc/sys/"+key, []byte(value), 0); err != nil {
			t.Fatalf("set kernel parameter: %v", err)
		}
	})
}

// Run runs a program in the namespace and returns its output. A program that fails is the end of
// the test.
func (n *NS) Run(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	out, err := n.Try(t, stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Try is Run for programs that may fail; what they wrote to standard error is in the error.
func (n *NS) Try(t testing.TB, stdin, name string, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	var err error
	// a process starts in the namespace of the thread that forks
	n.Do(t, func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("run %s: %w\n%s", cmd, err, stderr.String())
	}
	return stdout.String(), err
}
