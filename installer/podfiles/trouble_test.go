package podfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
)

// onTmpfs calls do with a directory on a tmpfs of its own, on a thread with mounts of its own,
// which go with it.
func onTmpfs(t *testing.T, options string, do func(dir string)) {
	t.Helper()
	dir, done := t.TempDir(), make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			onTmpfs(t, options, do) // the main thread's mounts would stay
			runtime.UnlockOSThread()
			return
		}
		if err = unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return
		}
		if err = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return
		}
		if err = unix.Mount("tmpfs", dir, "tmpfs", 0, options); err == nil {
			do(dir)
		}
	}()
	must(t, <-done)
}

// A pod whose file cannot be written has none, and the others stay fresh; it is written when there
// is room.
func TestFullRun(t *testing.T) {
	t.Parallel()
	onTmpfs(t, "size=128k", func(run string) {
		r := newAgent(t, run, newWorld(meshed("web-0", "u0"), meshed("web-1", "u1")))
		r.pass(false)
		fill := filepath.Join(run, "fill")
		must(t, os.WriteFile(fill, make([]byte, 96<<10), 0o600))
		r.world.put(sized("u1", 40<<10), sized("web-1", 40<<10), meshed("web-2", "u2"))
		delete(r.world.pods, "shop/u1")
		r.world.pods["shop/web-1"].UID = "u1"
		for range 3 {
			err := r.files.pass(true)
			if err == nil {
				t.Fatal("a pass does not say that a file could not be written")
			}
			r.files.report(err)
		}
		r.wantPods(map[string]string{"u0": "web-0", "u2": "web-2"})
		r.wantFresh("fresh")
		if r.count(hasFailed) != 1 || r.count(isWritten) != 2 {
			t.Errorf("%d failed, %d written; want 1 and 2", r.count(hasFailed), r.count(isWritten))
		}
		must(t, os.Remove(fill))
		r.files.report(r.files.pass(true))
		r.wantPods(map[string]string{"u0": "web-0", "u1": "web-1, 1 more annotations",
			"u2": "web-2"})
		r.wantSum()
		var said []string
		for _, entry := range r.logs.All() {
			said = append(said, entry.Message)
		}
		if fmt.Sprint(said) != "[pod files not up to date pod files up to date again]" {
			t.Errorf("logged %q", said)
		}
	})
}

// With no room at all nothing is refreshed, and no file is what the cache does not say.
func TestNoRoomAtAll(t *testing.T) {
	t.Parallel()
	onTmpfs(t, "size=64k,nr_inodes=12", func(run string) {
		r := newAgent(t, run, newWorld(meshed("web-0", "u0"), meshed("web-1", "u1")))
		r.pass(false)
		for i := range 20 {
			if os.WriteFile(filepath.Join(run, fmt.Sprint("fill", i)), nil, 0o600) != nil {
				break
			}
		}
		r.world.put(sized("web-0", 10), sized("web-1", 10))
		r.world.pods["shop/web-0"].UID, r.world.pods["shop/web-1"].UID = "u0", "u1"
		for range 3 {
			if r.files.pass(true) == nil && r.count(hasFailed) > 0 {
				t.Error("a pass that failed does not say so")
			}
			for uid, what := range pods(t, run) {
				if what != map[string]string{"u0": "web-0, 1 more annotations",
					"u1": "web-1, 1 more annotations"}[uid] {
					t.Errorf("%s: %s", uid, what)
				}
			}
		}
	})
}

// Where not even the removal of a file is possible, nothing counts as fresh.
func TestReadOnlyRun(t *testing.T) {
	t.Parallel()
	onTmpfs(t, "", func(run string) {
		r := newAgent(t, run, newWorld(meshed("web-0", "u0"), meshed("web-1", "u1")))
		r.pass(false)
		r.wantFresh("fresh")
		pods := podfile.Dir(run)
		must(t, unix.Mount(pods, pods, "", unix.MS_BIND, ""))
		must(t, unix.Mount("none", pods, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		r.files.report(r.files.pass(true)) // nothing has changed, but nothing can be refreshed
		r.wantFresh("fresh")
		delete(r.world.pods, "shop/web-1")
		for range 3 {
			r.files.report(r.files.pass(false))
			r.wantFresh("nobody holds it")
		}
		if r.logs.Len() > 3 {
			t.Errorf("logged %d times: %v", r.logs.Len(), r.logs.All())
		}
		must(t, unix.Unmount(pods, unix.MNT_DETACH))
		r.files.report(r.files.pass(false))
		r.wantPods(map[string]string{"u0": "web-0"})
		r.wantFresh("fresh")
	})
}
