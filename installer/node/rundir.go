package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// RunDir is the directory in which the agents of a node meet, and the plugin meets them: /run/sidecar-cni. It is made if
// it is missing.
type RunDir struct{ Path string }

// Lock waits until no other agent has it: passes do not overlap, during an upgrade or an uninstallation either. The kernel
// takes it back from an agent that is killed.
func (r RunDir) Lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(r.Path, "lock")
	f, err := r.open(path)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, unnamed(err))
	}
	// A lock that is waited for in the kernel cannot be given up when the context ends.
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		held, err := tryLock(f)
		if held {
			return func() { f.Close() }, nil
		}
		if err == nil {
			select {
			case <-retry.C:
				continue
			case <-ctx.Done():
				err = fmt.Errorf("another agent has it: %w", ctx.Err())
			}
		}
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}

func (r RunDir) open(path string) (*os.File, error) {
	if err := os.MkdirAll(r.Path, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// tryLock reports whether nobody else has the file locked, and locks it then.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

func (r RunDir) marker() string { return filepath.Join(r.Path, "uninstalled") }

// MarkUninstalled says to every agent of an installation that it shall write nothing, also to one that starts later.
func (r RunDir) MarkUninstalled(installID string) error {
	if err := os.MkdirAll(r.Path, 0o700); err != nil {
		return fmt.Errorf("mark %s: %w", r.marker(), unnamed(err))
	}
	_, err := WriteFile(r.marker(), []byte(installID+"\n"), 0o600)
	return err
}

// Uninstalled reports whether the marker is there, unless this is another installation than the marked one. One without an
// id cannot tell, and obeys.
func (r RunDir) Uninstalled(installID string) (bool, error) {
	marked, err := os.ReadFile(r.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for uninstallation: %w", err)
	}
	return installID == "" || string(bytes.TrimSpace(marked)) == installID, nil
}

// ClearMarker removes the marker: a new installation begins.
func (r RunDir) ClearMarker() error {
	err := os.Remove(r.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clear uninstallation: %w", err)
	}
	return syncDir(r.Path)
}
