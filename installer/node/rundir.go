package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/installation"
	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
)

// RunDir is the directory in which the agents of a node meet, and the plugin meets them:
// /run/sidecar-cni. It is made if it is missing.
type RunDir struct {
	Path string // names.RunDir, or what is configured
}

// Lock waits until no other agent has it: passes do not overlap, during an upgrade or an
// uninstallation either. The kernel takes it back from an agent that is killed.
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

// RemovePods removes the files of pods (package podfile), and reports whether there were any. Who
// writes them is an agent in charge, which does not after Mark.
func (r RunDir) RemovePods() (removed bool, err error) {
	dir := podfile.Dir(r.Path)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	err = os.MkdirAll(r.agents(), 0o700)
	if err == nil {
		err = withLock(r.agents(), func([]string) error { return os.RemoveAll(dir) })
	}
	if err != nil {
		return false, fmt.Errorf("remove files of pods in %s: %w", dir, unnamed(err))
	}
	return true, nil
}

// agents is where the members are (member.go).
func (r RunDir) agents() string { return filepath.Join(r.Path, "agents") }

func (r RunDir) open(path string) (*os.File, error) {
	if err := os.MkdirAll(r.Path, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

func (r RunDir) marker() string { return filepath.Join(r.Path, names.Uninstalled) }

// Marker is what an uninstallation leaves in the run directory: no agent of its installation shall
// write anything, also none that starts later.
type Marker struct {
	ID string // of the installation; empty for all
	// Withdrawn is when the DaemonSet was withdrawn, by the API server's clock. It
	// is zero if the node was taken out by hand. Whole seconds, as in all objects.
	Withdrawn time.Time
}

// Concerns reports whether the marker is about an installation. An agent that does not know the id
// of its own obeys any.
func (m Marker) Concerns(installID string) bool {
	return installID == "" || m.ID == "" || m.ID == installID
}

// Before reports whether a pod was created after the uninstallation began, so that its installation
// was taken up again.
func (m Marker) Before(created time.Time) bool {
	return !m.Withdrawn.IsZero() && created.After(m.Withdrawn)
}

// Mark writes the marker.
func (r RunDir) Mark(m Marker) error {
	if err := os.MkdirAll(r.Path, 0o700); err != nil {
		return fmt.Errorf("mark %s: %w", r.marker(), unnamed(err))
	}
	text := m.ID + "\n"
	if !m.Withdrawn.IsZero() {
		text += m.Withdrawn.UTC().Format(time.RFC3339) + "\n"
	}
	_, err := WriteFile(r.marker(), []byte(text), 0o600)
	return err
}

// Marked returns the marker, if there is one. It may have been made by hand.
func (r RunDir) Marked() (m Marker, there bool, err error) {
	data, err := os.ReadFile(r.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("look for uninstallation: %w", err)
	}
	id, rest, _ := strings.Cut(string(data), "\n")
	m.ID = strings.TrimSpace(id)
	// Without a time the pod's age does not matter.
	m.Withdrawn, _ = time.Parse(time.RFC3339, strings.TrimSpace(rest))
	return m, true, nil
}

// Announce writes down the installation that is in charge.
func (r RunDir) Announce(i installation.Installation) error {
	data, err := json.Marshal(i)
	if err == nil {
		_, err = WriteFile(installation.Path(r.Path), append(data, '\n'), 0o600)
	}
	return err
}

func (r RunDir) resumed() string { return filepath.Join(r.Path, "resumed") }

// Resume removes the marker of an uninstallation that was given up, and notes which one: a pod that
// still carries it out must not do so again.
func (r RunDir) Resume(m Marker) error {
	if !m.Withdrawn.IsZero() {
		if _, err := WriteFile(r.resumed(), []byte(m.Withdrawn.UTC().Format(time.RFC3339)+"\n"),
			0o600); err != nil {
			return err
		}
	}
	return r.clearMarker()
}

// Resumed reports whether an uninstallation that began then was given up, or a later one.
func (r RunDir) Resumed(withdrawn time.Time) (bool, error) {
	data, err := os.ReadFile(r.resumed())
	if errors.Is(err, fs.ErrNotExist) || withdrawn.IsZero() {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for resumption: %w", err)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(data)))
	return err == nil && !at.Before(withdrawn), nil
}

// clearMarker removes the marker: a new installation begins.
func (r RunDir) clearMarker() error {
	err := os.Remove(r.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clear uninstallation: %w", err)
	}
	return syncDir(r.Path)
}
