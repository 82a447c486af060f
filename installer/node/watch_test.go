package node_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// watcher is one that waits for signals.
type watcher struct{ signals <-chan struct{} }

func watching(t *testing.T, paths ...string) watcher {
	t.Helper()
	signals, err := node.Watch(t.Context(), paths, zap.NewNop())
	must(t, err)
	return watcher{signals}
}

// A time is counted in short rounds: of a machine that stands still it is one that goes by, and the
// watch, which stood still, too, has the others.
const (
	round = 50 * time.Millisecond
	long  = 200 // rounds: more than any signal takes
	calm  = 30  // rounds: longer than the least time between two signals
)

// signaled reports whether a signal comes within so many rounds.
func (w watcher) signaled(rounds int) bool {
	for range rounds {
		select {
		case <-w.signals:
			return true
		case <-time.After(round):
		}
	}
	return false
}

// woken takes with the first signal what comes of the same change.
func (w watcher) woken(by string) error {
	if !w.signaled(long) {
		return fmt.Errorf("not woken by %s", by)
	}
	for w.signaled(calm) {
	}
	return nil
}

func (w watcher) quiet(after string) error {
	if w.signaled(calm) {
		return fmt.Errorf("woken by %s", after)
	}
	return nil
}

// beforeTheTick does what has to be over before the signal that comes in any case after 30 s, which
// would be taken for another. It is done again if the machine was too slow for it.
func beforeTheTick(t *testing.T, do func(t *testing.T) error) {
	t.Helper()
	for range 5 {
		began := time.Now()
		err := do(t)
		took := time.Since(began)
		if took < 30*time.Second {
			must(t, err)
			return
		}
		t.Logf("done again, after %v: %v", took, err)
	}
	t.Fatal("it took more than 30 s each time")
}

// step is a change, and whether it wakes nobody.
type step struct {
	what  string
	do    func(t *testing.T, dir string)
	quiet bool
}

func put(name string) func(*testing.T, string) {
	return func(t *testing.T,
		dir string) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
	}
}

func move(from, to string) func(*testing.T, string) {
	return func(t *testing.T,
		dir string) {
		must(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
}

func mkdir(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.MkdirAll(filepath.Join(dir, name), 0o755)) }
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, name))) }
}

func rotate(t *testing.T, dir string) { project(t, filepath.Join(dir, "net.d"), "token") }

// TestWatch watches net.d, which is there or not.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"files": {
			{"", mkdir("net.d"), false},
			{"a new file", put("net.d/10-pods.conflist"), false},
			{"a change", put("net.d/10-pods.conflist"), false},
			{"a temporary file of ours", put("net.d/.x.1.sidecar-cni-tmp"), true},
			{"a renamed file", move("net.d/10-pods.conflist", "net.d/20-pods.conflist"), false},
			{"a removed file", remove("net.d/20-pods.conflist"), false},
			{"a file beside the directory", put("beside"), true},
		},
		"drop-ins": {
			{"", mkdir("net.d/pods"), false},
			{"a drop-in", put("net.d/pods/10-x.conf"), false},
			{"a new sub-directory", mkdir("net.d/other"), false},
			{"a drop-in in the new one", put("net.d/other/10-x.conf"), false},
		},
		"a token": {
			{"", rotate, false},
			{"a rotation", rotate, false},
			{"another rotation", rotate, false},
		},
		"a missing directory": {
			{"", func(*testing.T, string) {}, false},
			{"a file in its parent", put("beside"), true},
			{"the directory", mkdir("net.d"), false},
			{"a file in it", put("net.d/x"), false},
			{"its removal", remove("net.d"), false},
			{"the directory, made again", mkdir("net.d"), false},
			{"a file in the one made again", put("net.d/x"), false},
		},
		"a directory that gets its inode again": {
			{"", mkdir("net.d"), false},
			{"another in its place", func(t *testing.T, dir string) {
				remove("net.d")(t, dir)
				mkdir("net.d")(t, dir)
			}, false},
			{"a file in it", put("net.d/x"), false},
		},
		"a directory that is replaced": {
			{"", mkdir("net.d"), false},
			{"one that waits", mkdir("new"), true},
			{"its removal", move("net.d", "old"), false},
			{"the other one", move("new", "net.d"), false},
			{"a file in the other one", put("net.d/x"), false},
			{"a file in the one replaced", put("old/x"), true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beforeTheTick(t, func(t *testing.T) error {
				dir := t.TempDir()
				steps[0].do(t, dir)
				w := watching(t, filepath.Join(dir, "net.d"))
				for _, step := range steps[1:] {
					step.do(t, dir)
					await := w.woken
					if step.quiet {
						await = w.quiet
					}
					if err := await(step.what); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// project is what the kubelet does with a projected volume: a new directory, and a link that is
// renamed over the old one.
func project(t *testing.T, dir, token string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	version := filepath.Join(dir, "..2026_"+rand.Text())
	must(t, os.Mkdir(version, 0o755))
	must(t, os.WriteFile(filepath.Join(version, "token"), []byte(token), 0o600))
	must(t, os.Symlink(filepath.Base(version), filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old == "" {
		must(t, os.Symlink(filepath.Join("..data", "token"), filepath.Join(dir, "token")))
		return
	}
	must(t, os.RemoveAll(filepath.Join(dir, old)))
}

// A directory that comes and goes all the time is found in the end, wherever the watch was when it
// came.
func TestWatchADirectoryThatIsMadeAgainAndAgain(t *testing.T) {
	t.Parallel()
	beforeTheTick(t, func(t *testing.T) error {
		conf := filepath.Join(t.TempDir(), "etc", "cni", "net.d")
		w := watching(t, conf)
		for range 300 {
			must(t, os.MkdirAll(conf, 0o755))
			must(t, os.RemoveAll(filepath.Dir(filepath.Dir(conf))))
			runtime.Gosched()
		}
		must(t, os.MkdirAll(conf, 0o755))
		if err := w.woken("a directory that came and went"); err != nil {
			return err
		}
		must(t, os.WriteFile(filepath.Join(conf, "x"), nil, 0o644))
		return w.woken("a file in it")
	})
}

func TestABusyNeighbourWakesOnceASecond(t *testing.T) {
	t.Parallel()
	conf := t.TempDir()
	w := watching(t, conf)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // before the tick
	defer cancel()
	began := time.Now()
	writes := make(chan int, 1)
	go func() {
		beat := time.NewTicker(10 * time.Millisecond)
		defer beat.Stop()
		n := 0
		for ; ctx.Err() == nil; n++ {
			if err := os.WriteFile(filepath.Join(conf, "10-pods.conflist"), []byte(strconv.Itoa(n)),
				0o644); err != nil {
				t.Error(err)
			}
			<-beat.C
		}
		writes <- n
	}()
	signals := 0
	for ctx.Err() == nil {
		select {
		case <-w.signals:
			signals++
			if signals >= 2 && time.Since(began) >= 5*time.Second {
				cancel()
			}
		case <-ctx.Done():
		}
	}
	n, most := <-writes, int(time.Since(began)/time.Second)+2
	if signals < 2 || signals > most {
		t.Errorf("%d writes: %d signals, want 2 to %d", n, signals, most)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	signals, err := node.Watch(ctx, []string{t.TempDir()}, zap.NewNop())
	must(t, err)
	cancel()
	for range signals {
	}
	if _, err := node.Watch(ctx, []string{"net.d"}, zap.NewNop()); err == nil {
		t.Error("a relative path is watched")
	}
}
