package node

import (
	"bytes"
	"context"
	"encoding/json"
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

// Uninstalled reports whether the marker is there, unless it is another installation's. A marker without an id binds all of
// them, and an agent without one obeys any.
func (r RunDir) Uninstalled(installID string) (bool, error) {
	data, err := os.ReadFile(r.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for uninstallation: %w", err)
	}
	marked := string(bytes.TrimSpace(data))
	return installID == "" || marked == "" || marked == installID, nil
}

// Installation is what whoever uninstalls has to know of the agent that is in charge: its id, and where it put things.
type Installation struct {
	ID      string `json:"id"`
	ConfDir string `json:"confDir"`
	BinDir  string `json:"binDir"`
	Multus  string `json:"multusConfDir"`
	Socket  string `json:"runtimeSocket"`
}

func (r RunDir) installation() string { return filepath.Join(r.Path, "installation") }

// Announce writes down the installation that is in charge.
func (r RunDir) Announce(i Installation) error {
	data, err := json.Marshal(i)
	if err == nil {
		_, err = WriteFile(r.installation(), append(data, '\n'), 0o600)
	}
	return err
}

// Announced returns the installation that was in charge last; nothing if there was none since the node has started.
func (r RunDir) Announced() (Installation, error) {
	var i Installation
	data, err := os.ReadFile(r.installation())
	if errors.Is(err, fs.ErrNotExist) {
		return i, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	if err != nil {
		return Installation{}, fmt.Errorf("read %s: %w", r.installation(), unnamed(err))
	}
	return i, nil
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
