package follow

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after a minute there is still not %s", what)
		}
	}
}

// volume writes a file as the kubelet does: behind links, one of which it replaces.
func volume(t *testing.T, dir, version, text string) {
	t.Helper()
	write(t, filepath.Join(dir, ".."+version, "config"), text)
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(".."+version, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, volumeLink)); err != nil {
		t.Fatal(err)
	}
	err := os.Symlink(filepath.Join(volumeLink, "config"), filepath.Join(dir, "config"))
	if err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

func TestFilesAreFollowed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, after func(t *testing.T, dir string)
	}{
		"one that is written": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "config"), "first") },
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "config"), "second") },
		},
		"one that comes": {
			func(*testing.T, string) {},
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "config"), "second") },
		},
		"one that an editor replaces": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "config"), "first") },
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, ".config.swp"), "second")
				err := os.Rename(filepath.Join(dir, ".config.swp"), filepath.Join(dir, "config"))
				if err != nil {
					t.Fatal(err)
				}
			},
		},
		"one of a volume": {
			func(t *testing.T, dir string) { volume(t, dir, "1", "first") },
			func(t *testing.T, dir string) { volume(t, dir, "2", "second") },
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "sub")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			test.before(t, dir)
			path := filepath.Join(dir, "config")
			log := zap.NewNop()
			changes := follow(t, func(ctx context.Context, changed func()) {
				Files(ctx, []string{path}, log, changed)
			})
			eventually(t, "a first signal", func() bool { return changes() > 0 })
			test.after(t, dir)
			eventually(t, "another signal", func() bool { return changes() > 1 })
			data, err := os.ReadFile(path)
			if err != nil || string(data) != "second" {
				t.Errorf("%v, %q", err, data)
			}
		})
	}
}

// What the kernel does not report is found by looking.
func TestADirectoryThatComesLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "config")
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notify.Close() }()
	w := fileWatch{paths: []string{path}, every: 10 * time.Millisecond, notify: notify,
		log: zap.NewNop()}
	changes := follow(t, func(ctx context.Context, changed func()) { w.run(ctx, notify, changed) })
	eventually(t, "a look", func() bool { return changes() > 1 })
	write(t, path, "first")
	eventually(t, "a watch", func() bool { return len(notify.WatchList()) == 1 })
}
