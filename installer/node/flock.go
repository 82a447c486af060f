package node

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits until nobody else has the file or directory locked, and locks it until f is closed.
// The kernel ends the lock with the process too, however that ends; a file's content and its name
// are not locked. Waiting cannot be given up.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// tryLock reports whether nobody else has the file locked, and locks it then.
func tryLock(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
