package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/installation"
	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func rundir(t *testing.T) node.RunDir {
	t.Helper()
	return node.RunDir{Path: filepath.Join(t.TempDir(), "run", "sidecar-cni")}
}

func superseded(t *testing.T, m *node.Membership, want bool) {
	t.Helper()
	if got, err := m.Superseded(); got != want || err != nil {
		t.Errorf("superseded: %v, %v, want %v", got, err, want)
	}
}

func members(t *testing.T, r node.RunDir) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.Path, "agents"))
	must(t, err)
	return len(entries)
}

func TestTheNewerAgentIsInCharge(t *testing.T) {
	t.Parallel()
	r := rundir(t)
	older, err := r.Join()
	must(t, err)
	superseded(t, older, false)
	newer, err := r.Join()
	must(t, err)
	superseded(t, older, true)
	superseded(t, newer, false)
	newest, err := r.Join()
	must(t, err)
	superseded(t, newer, true)
	newer.Leave()
	superseded(t, older, true)
	newest.Leave()
	superseded(t, older, false)
	older.Leave()
	if n := members(t, r); n != 0 {
		t.Errorf("%d members left", n)
	}
}

func TestTheOlderAgentTakesOverFromAKilledOne(t *testing.T) {
	t.Parallel()
	r := rundir(t)
	older, err := r.Join()
	must(t, err)
	newer := startChild(t, []string{"", "join", r.Path})
	superseded(t, older, true)
	must(t, newer.Process.Kill())
	_ = newer.Wait()
	superseded(t, older, false)
	if n := members(t, r); n != 1 {
		t.Errorf("%d members", n)
	}
	older.Leave()
}

// A marker that cannot be read is a mistake to report, and no other agent.
func TestAMarkerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := node.RunDir{Path: t.TempDir()}
	m, err := r.Join()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave()
	if err := os.Mkdir(filepath.Join(r.Path, names.Uninstalled), 0o700); err != nil {
		t.Fatal(err)
	}
	err = m.Lead(func() error { t.Error("it was done"); return nil })
	if err == nil || errors.Is(err, node.ErrSuperseded) {
		t.Errorf("error %v, want what is wrong with the marker", err)
	}
}

func TestTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	r := rundir(t)
	dir := filepath.Join(r.Path, "agents")
	must(t, os.MkdirAll(dir, 0o700))
	tomorrow := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixNano(), 10)
	must(t, os.WriteFile(filepath.Join(dir, "nonsense"), nil, 0o600))
	older, err := os.Create(filepath.Join(dir, tomorrow+"-a"))
	must(t, err)
	defer older.Close()
	must(t, unix.Flock(int(older.Fd()), unix.LOCK_EX))
	newer, err := r.Join()
	must(t, err)
	superseded(t, newer, false)
	if n := members(t, r); n != 2 {
		t.Errorf("%d members", n)
	}
}

func TestSomebodyRemovesTheRunDirectory(t *testing.T) {
	t.Parallel()
	r := rundir(t)
	older, err := r.Join()
	must(t, err)
	newer, err := r.Join()
	must(t, err)
	must(t, os.RemoveAll(r.Path))
	superseded(t, newer, false)
	superseded(t, older, true)
	superseded(t, newer, false)
	newer.Leave()
	superseded(t, older, false)
}

func TestPassesDoNotOverlap(t *testing.T) {
	t.Parallel()
	r := rundir(t)
	unlock, err := r.Lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Lock(ctx); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "another agent has it") {
		t.Errorf("locked twice: %v", err)
	}
	waited := make(chan error, 1)
	go func() {
		unlock, err := r.Lock(t.Context())
		if err == nil {
			unlock()
		}
		waited <- err
	}()
	unlock()
	must(t, <-waited)
	killed := startChild(t, []string{"", "lock", r.Path})
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	unlock, err = r.Lock(t.Context())
	must(t, err)
	unlock()
}

func TestUninstalled(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		marked, asked string
		concerns      bool
	}{
		"the same installation":       {"a", "a", true},
		"a new installation":          {"a", "b", false},
		"one that has no id":          {"a", "", true},
		"none has an id":              {"", "", true},
		"a new one, the first had no": {"", "b", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rundir(t)
			check := func(want bool) {
				t.Helper()
				m, got, err := r.Marked()
				if got != want || err != nil || m.Before(time.Now()) {
					t.Errorf("marked: %v, %+v, %v, want %v", got, m, err, want)
				}
				if got && m.Concerns(row.asked) != row.concerns {
					t.Errorf("concerns %q: %v, want %v", row.asked, !row.concerns, row.concerns)
				}
			}
			check(false)
			must(t, r.Resume(node.Marker{}))
			for range 2 {
				must(t, r.Mark(node.Marker{ID: row.marked}))
			}
			check(true)
			for range 2 {
				must(t, r.Resume(node.Marker{}))
			}
			check(false)
		})
	}
	r := rundir(t)
	must(t, os.MkdirAll(filepath.Join(r.Path, "uninstalled"), 0o700))
	if _, _, err := r.Marked(); err == nil {
		t.Error("a marker that cannot be read is no error")
	}
}

// TestMarkerWithATime tells pods that were created before an uninstallation from later ones.
// Objects have whole seconds.
func TestMarkerWithATime(t *testing.T) {
	t.Parallel()
	r := rundir(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	must(t, r.Mark(node.Marker{ID: "a", Withdrawn: at}))
	m, there, err := r.Marked()
	if err != nil || !there || m.ID != "a" || !m.Withdrawn.Equal(at) {
		t.Fatalf("%+v, %v, %v", m, there, err)
	}
	for created, want := range map[time.Time]bool{at.Add(-time.Hour): false, at: false,
		at.Add(time.Second): true, {}: false} {
		if got := m.Before(created); got != want {
			t.Errorf("%s: %v, want %v", created, got, want)
		}
	}
	for _, byHand := range []string{"", "a", "a\n", "a\nsoon\n"} {
		must(t, os.WriteFile(filepath.Join(r.Path, "uninstalled"), []byte(byHand), 0o600))
		if m, there, err := r.Marked(); err != nil || !there || m.Before(at.Add(time.Hour)) ||
			!m.Concerns("a") {
			t.Errorf("%q: %+v, %v, %v", byHand, m, there, err)
		}
	}
}

func TestInstallation(t *testing.T) {
	t.Parallel()
	r := node.RunDir{Path: t.TempDir()}
	if got, err := installation.Read(r.Path); err != nil || got != (installation.Installation{}) {
		t.Errorf("before the first: %+v, %v", got, err)
	}
	want := installation.Installation{ID: "a", ConfDir: "/c", BinDir: "/b", Multus: "/m", Socket: "/s"}
	must(t, r.Announce(installation.Installation{ID: "older"}))
	must(t, r.Announce(want))
	if got, err := installation.Read(r.Path); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	must(t, os.WriteFile(filepath.Join(r.Path, "installation"), []byte("{"), 0o600))
	if _, err := installation.Read(r.Path); err == nil || !strings.Contains(err.Error(), r.Path) {
		t.Errorf("cut off: %v", err)
	}
}
