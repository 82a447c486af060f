package node

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// InRoot runs a function on a thread of its own whose root directory is another one, such as the host's, mounted into a
// container. Programs that the function starts have that root too; other goroutines, and those that the function starts,
// have not. It needs the right SYS_CHROOT. A program without a Stdin of its own needs a /dev/null there.
func InRoot(root string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		// A thread cannot go back to where it was. Never unlocked, it ends with this goroutine.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread would not end, and /proc/self shows its root. While we keep it, the next one gets another.
			done <- InRoot(root, do)
			runtime.UnlockOSThread()
			return
		}
		if err := chroot(root); err != nil {
			done <- fmt.Errorf("change root to %s: %w", root, err)
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
