// Package hostroot runs functions on threads of their own that have another root directory: that of
// the host, whose programs they run.
//
//	err := hostroot.InRoot("/host", func() error { return exec.Command("iptables-save").Run() })
package hostroot

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// InRoot runs a function on a thread of its own whose root directory is another one, such as the
// host's, mounted into a container. Programs that the function starts have that root too; other
// goroutines, and those that the function starts, have not. It needs the right SYS_CHROOT. A
// program without a Stdin of its own needs a /dev/null there.
func InRoot(root string, do func() error) error {
	return OnThread(func() error {
		if err := chroot(root); err != nil {
			return fmt.Errorf("change root to %s: %w", root, err)
		}
		return do()
	})
}

// OnThread runs a function on a thread of its own, which ends with it: whatever the function does
// to the thread, be it where its root is or its network, stays with the thread.
func OnThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: a thread cannot go back to where it was
		if unix.Gettid() == unix.Getpid() {
			// The main thread would not end, and /proc/self shows what is its. While we keep it,
			// the next one gets another.
			done <- OnThread(do)
			runtime.UnlockOSThread()
			return
		}
		done <- do()
	}()
	return <-done
}

func chroot(root string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	return unix.Chdir("/")
}
