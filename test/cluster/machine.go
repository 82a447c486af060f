package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A machine is processes and the namespaces they share: of processes, mounts, interfaces, host name
// and IPC. When its first process ends, the kernel ends the others.
type machine struct {
	path string // where its programs are looked up

	first *exec.Cmd
	// the first process ends when this is closed, be it by the end of the test process
	alive io.Closer
	pidfd int
	gone  chan struct{} // nil unless it runs
}

const (
	newNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET |
		unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// boot starts a machine, which first sees the mounts of another or of the real one, with a script
// that says "ready" and then waits for the end of its input. Be aware that the kernel does not nest
// the processes: a machine outlives the other.
func (m *machine) boot(within *machine, script string, args ...string) error {
	var complaints bytes.Buffer
	cmd := exec.Command("/bin/bash", append([]string{"-c", script, "init"}, args...)...)
	cmd.Stderr = &complaints
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: newNamespaces, Setsid: true, PidFD: &m.pidfd}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	start := cmd.Start
	if within != nil {
		start = func() error { return within.enter(unix.CLONE_NEWNS, cmd.Start) }
	}
	if err := start(); err != nil {
		return fmt.Errorf("start machine: %w", err)
	}
	m.first, m.alive, m.gone = cmd, stdin, make(chan struct{})
	said, err := io.ReadAll(io.LimitReader(stdout, int64(len("ready\n"))))
	go func(gone chan struct{}) {
		defer close(gone)
		_ = cmd.Wait() // it is killed
	}(m.gone)
	if err == nil && string(said) == "ready\n" {
		return nil
	}
	m.kill()
	return fmt.Errorf("start machine: %s", complaints.String())
}

// kill ends every process and returns when none is left, and with them no mount and no interface. A
// machine may be dead.
func (m *machine) kill() {
	if m.gone == nil {
		return
	}
	_ = m.first.Process.Kill() // it may be dead
	m.release()
}

// end lets the first process end the others and clean up.
func (m *machine) end() {
	m.alive.Close()
	m.release()
}

func (m *machine) release() {
	<-m.gone
	m.alive.Close()
	unix.Close(m.pidfd)
	m.gone = nil
}

// file returns the path under which the test process finds a file of the machine.
func (m *machine) file(path string) string {
	return filepath.Join("/proc", fmt.Sprint(m.first.Process.Pid), "root", path)
}

func (m *machine) write(path string, content []byte) error {
	path = m.file(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// command is a program as the machine finds it, with nothing of the test's environment.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	env := []string{"env", "-i", "PATH=" + m.path + ":" + systemPath, "HOME=/root", name}
	return &exec.Cmd{Path: "/usr/bin/env", Args: append(env, args...),
		SysProcAttr: &unix.SysProcAttr{Setsid: true}}
}

// run runs a program in the machine and returns what it wrote to standard output; what it wrote to
// standard error is in the error. Nothing runs longer than four minutes.
func (m *machine) run(stdin io.Reader, name string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := m.command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := m.start(cmd)
	if err == nil {
		// it may have ended
		late := time.AfterFunc(2*awaitTimeout, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		late.Stop()
	}
	if err != nil {
		err = fmt.Errorf("run %s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), err
}

// start starts a process in the machine. It is a child of the test process, which buries it, but
// dies with the machine.
func (m *machine) start(cmd *exec.Cmd) error { return m.enter(newNamespaces, cmd.Start) }

// dial makes a connection from the machine's network. The address has no names.
func (m *machine) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = m.enter(unix.CLONE_NEWNET, func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// listen opens a port in the machine's network.
func (m *machine) listen(address string) (l net.Listener, err error) {
	err = m.enter(unix.CLONE_NEWNET, func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// links returns a way to the machine's interfaces.
func (m *machine) links() (h *netlink.Handle, err error) {
	err = m.enter(unix.CLONE_NEWNET, func() error {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	return h, err
}

// enter calls f on a thread in some of the machine's namespaces.
func (m *machine) enter(namespaces int, f func() error) error {
	return onThread(func() error {
		// A thread that shares its working directory with others cannot change its mounts.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("enter machine: %w", err)
		}
		if err := unix.Setns(m.pidfd, namespaces); err != nil {
			return fmt.Errorf("enter machine: %w", err)
		}
		return f()
	})
}

// onThread calls f on a thread that ends with it: there is no way back from some namespaces. The
// process' main thread cannot end, and is what /proc/self shows: it is kept busy while another does
// the work.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}
