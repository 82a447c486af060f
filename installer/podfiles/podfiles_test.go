package podfiles

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func TestWhichPodsHaveAFile(t *testing.T) {
	t.Parallel()
	plain := meshed("plain", "u1")
	plain.Annotations = nil
	mirror := meshed("mirror", "u2")
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = "x"
	bad := meshed("bad", "../u3")
	incomplete := meshed("incomplete", "u4")
	incomplete.Spec.Containers = nil
	r := newAgent(t, t.TempDir(), newWorld(meshed("web-0", "u0"), plain, mirror, bad, incomplete))
	r.pass(false)
	r.wantPods(map[string]string{"u0": "web-0"})
	r.wantFresh("fresh")
	if r.count(isWritten) != 1 || r.count(isTooLarge) != 1 {
		t.Errorf("%d written, %d too large; want 1 and 1", r.count(isWritten), r.count(isTooLarge))
	}
	for name, want := range map[string]fs.FileMode{
		"": fs.ModeDir | 0o700, "u0": 0o600, podfile.FreshFile: 0o600,
	} {
		is, err := os.Lstat(filepath.Join(podfile.Dir(r.run), name))
		must(t, err)
		if is.Mode() != want {
			t.Errorf("%q has mode %v, want %v", name, is.Mode(), want)
		}
	}
}

func TestFilesFollowTheCache(t *testing.T) {
	t.Parallel()
	r := newAgent(t, t.TempDir(), newWorld(meshed("web-0", "u0"), meshed("web-1", "u1")))
	r.pass(false)
	inode := func(uid string) os.FileInfo {
		is, err := os.Stat(filepath.Join(podfile.Dir(r.run), uid))
		must(t, err)
		return is
	}
	was := inode("u0")
	running := meshed("web-0", "u0")
	running.Status.Phase = corev1.PodRunning
	r.world.put(running, sized("web-2", 10))
	delete(r.world.pods, "shop/web-1")
	r.pass(false)
	r.wantPods(map[string]string{"u0": "web-0", "web-2": "web-2, 1 more annotations"})
	if !os.SameFile(was, inode("u0")) {
		t.Error("a file was written anew, though nothing that decides has changed")
	}
	changed := meshed("web-0", "u0")
	changed.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "1"
	r.world.put(changed, meshed("web-2", "another"))
	r.pass(false)
	r.wantPods(map[string]string{"u0": "web-0, 1 more annotations", "another": "web-2"})
}

func TestTheHandlerComesWithItsClass(t *testing.T) {
	t.Parallel()
	pod, class := meshed("web-0", "u0"), "sandboxed"
	pod.Spec.RuntimeClassName = &class
	r := newAgent(t, t.TempDir(), newWorld(pod))
	r.pass(false)
	r.wantPods(map[string]string{"u0": "web-0"})
	r.world.classes = map[string]string{class: "runsc"}
	r.pass(false)
	r.wantPods(map[string]string{"u0": "web-0, handler runsc"})
}

// An agent that starts without an API server changes nothing.
func TestNothingIsTouchedBeforeTheFirstSync(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	old := newAgent(t, run, newWorld(meshed("web-0", "u0")))
	old.pass(false)
	old.end()
	must(t, os.WriteFile(filepath.Join(podfile.Dir(run), tempName), nil, 0o600))
	r := newAgent(t, run, newWorld())
	r.world.synced = false
	r.pass(true)
	r.wantPods(map[string]string{"u0": "web-0", tempName: `it begins with "", want "sidecar-cni pod 1 0\n"`})
	r.wantFresh("nobody holds it")
	r.world.synced = true
	r.pass(true)
	r.wantPods(map[string]string{})
	r.wantFresh("fresh")
}

// While the watch is broken the files stay, and the last refresh grows old.
func TestNoRefreshWithoutAWatch(t *testing.T) {
	t.Parallel()
	r := newAgent(t, t.TempDir(), newWorld(meshed("web-0", "u0")))
	r.world.follows = false
	r.pass(true)
	r.wantPods(map[string]string{"u0": "web-0"})
	r.wantFresh("none")
	r.world.follows = true
	r.pass(false)
	r.wantFresh("fresh")
	path := filepath.Join(podfile.Dir(r.run), podfile.FreshFile)
	first, err := os.ReadFile(path)
	must(t, err)
	r.pass(false) // which is too soon
	again, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("refreshed without need (-first +again):\n%s", diff)
	}
	r.world.follows = false
	r.pass(true)
	r.world.follows = true
	r.pass(true)
	r.wantFresh("fresh")
	if again, err = os.ReadFile(path); err != nil || cmp.Equal(first, again) {
		t.Errorf("not refreshed when it was due, %v", err)
	}
}

func TestTwoAgentsInTurn(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	old := newAgent(t, run, newWorld(meshed("web-0", "u0"), meshed("gone", "u1")))
	old.pass(false)
	young := newAgent(t, run, newWorld(meshed("web-0", "u0"), meshed("young", "u2")))
	young.world.synced = false
	young.pass(true)
	young.wantFresh("fresh") // the old one's, whose cache nothing has happened in

	old.world.put(sized("old", 10))
	old.pass(false)
	old.wantFresh("nobody holds it")
	old.wantPods(map[string]string{"u0": "web-0", "u1": "gone"})
	young.world.synced = true
	young.pass(true)
	want := map[string]string{"u0": "web-0", "u2": "young"}
	young.wantPods(want)
	young.wantFresh("fresh")
	old.pass(true)
	young.wantPods(want)
	young.wantFresh("fresh")
	if old.logs.Len() > 0 {
		t.Errorf("logged %v, which is no trouble", old.logs.All())
	}

	young.end()
	young.wantFresh("nobody holds it")
	old.pass(true)
	old.wantPods(map[string]string{"u0": "web-0", "u1": "gone", "old": "old, 1 more annotations"})
	old.wantFresh("fresh")
}

// Another agent takes over and ends while this one has nothing to do: the files are not what this
// one has written, and it must not vouch for them.
func TestAnotherAgentCameAndWent(t *testing.T) {
	t.Parallel()
	for name, follows := range map[string]bool{"fresh before": true, "never fresh": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := t.TempDir()
			old := newAgent(t, run, newWorld(changed(), meshed("web-2", "u2")))
			old.world.follows = follows
			old.pass(true)
			young := newAgent(t, run, newWorld(meshed("web-1", "u1"), meshed("new", "u3")))
			young.pass(true)
			young.end()

			old.world.follows = true
			old.pass(true) // which finds out, if there was nothing to write
			old.pass(true)
			old.wantPods(map[string]string{"u1": "web-1, 1 more annotations", "u2": "web-2"})
			old.wantFresh("fresh")
		})
	}
}

// What the old agent has said to be fresh is not, once the young one writes.
func TestTakingOverBeginsWithNothingFresh(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	newAgent(t, run, newWorld(meshed("web-0", "u0"))).pass(false)
	young := newAgent(t, run, newWorld(meshed("web-0", "u0")))
	young.world.follows = false
	young.wantFresh("fresh")
	young.pass(true)
	young.wantFresh("none")
}

// A refresh needs the lead as well: an agent that has nothing to write may be the old one.
func TestASupersededAgentDoesNotRefresh(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	old := newAgent(t, run, newWorld(meshed("web-0", "u0")))
	old.pass(false)
	young := newAgent(t, run, newWorld(meshed("web-0", "u0")))
	old.pass(true)
	young.wantFresh("nobody holds it")
}

func TestAnUninstallationRemovesTheFiles(t *testing.T) {
	t.Parallel()
	dir := node.RunDir{Path: t.TempDir()}
	r := newAgent(t, dir.Path, newWorld(meshed("web-0", "u0")))
	r.pass(false)
	must(t, dir.Mark(node.Marker{}))
	removed, err := dir.RemovePods()
	if !removed || err != nil {
		t.Fatalf("removed: %v, %v", removed, err)
	}
	r.world.put(meshed("web-1", "u1"))
	r.pass(true)
	r.wantPods(nil)
	if removed, err := dir.RemovePods(); removed || err != nil {
		t.Errorf("removed again: %v, %v", removed, err)
	}
	must(t, os.Remove(filepath.Join(dir.Path, "uninstalled")))
	r.pass(true)
	r.wantPods(map[string]string{"u0": "web-0", "u1": "web-1"})
}

// The way out by hand, under an agent that runs.
func TestADirectoryThatWasRemovedIsMadeAnew(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(string) error{
		"removed": os.RemoveAll,
		"made anew": func(dir string) error {
			must(t, os.Rename(dir, dir+".moved"))
			return os.Mkdir(dir, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newAgent(t, t.TempDir(), newWorld(meshed("web-0", "u0")))
			r.pass(false)
			must(t, remove(podfile.Dir(r.run)))
			if err := r.files.pass(true); err == nil {
				t.Error("a pass does not say that the directory is gone")
			}
			r.pass(true)
			r.wantPods(map[string]string{"u0": "web-0"})
			r.wantFresh("fresh")
		})
	}
}

// What somebody else does to single files holds until the next refresh.
func TestFilesAreLookedAfter(t *testing.T) {
	t.Parallel()
	r := newAgent(t, t.TempDir(), newWorld(meshed("web-0", "u0"), meshed("web-1", "u1"),
		meshed("web-2", "u2"), meshed("web-3", "u3"), sized("large", podfile.MaxFile)))
	r.pass(true)
	path := func(name string) string { return filepath.Join(podfile.Dir(r.run), name) }
	must(t, os.Remove(path("u0")))
	must(t, os.Truncate(path("u3"), 0))
	must(t, os.Remove(path(podfile.FreshFile)))
	must(t, os.Truncate(path("u1"), 30))
	must(t, os.WriteFile(path("u9"), []byte("x"), 0o600))
	must(t, os.Symlink("/etc/passwd", path("large")))
	must(t, os.WriteFile(path("README"), bytes.Repeat([]byte("x"), podfile.MaxFile+1), 0o600))
	untouched, err := os.Stat(path("u2"))
	must(t, err)
	r.pass(true)
	r.wantPods(map[string]string{"u0": "web-0", "u1": "web-1", "u2": "web-2", "u3": "web-3"})
	r.wantFresh("fresh")
	r.wantSum()
	if now, err := os.Stat(path("u2")); err != nil || !os.SameFile(untouched, now) {
		t.Errorf("a file that was as it should be was written anew: %v", err)
	}
	if r.count(isWritten) != 4 || r.count(isTooLarge) != 1 {
		t.Errorf("%d files are written and %d too large, want 4 and 1", r.count(isWritten),
			r.count(isTooLarge))
	}
}

// What is not ours in the place of something goes when an agent takes over.
func TestWhatIsInTheWayIsRemoved(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "kept"), nil, 0o600))
	for name, prepare := range map[string]func(dir string) error{
		"a link":              func(dir string) error { return os.Symlink(other, dir) },
		"a file":              func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"open to all":         open777,
		"another's":           given,
		"directory of a name": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "u0", "x"), 0o700) },
		"directory of .fresh": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, podfile.FreshFile, "x"), 0o700)
		},
		"1 GB": func(dir string) error {
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "u9"), nil, 0o600))
			must(t, os.Truncate(filepath.Join(dir, "u9"), 1<<30))
			return os.Symlink("/etc/passwd", filepath.Join(dir, "u0"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := t.TempDir()
			must(t, prepare(podfile.Dir(run)))
			r := newAgent(t, run, newWorld(meshed("web-0", "u0")))
			r.pass(false)
			r.wantPods(map[string]string{"u0": "web-0"})
			r.wantFresh("fresh")
			is, err := os.Lstat(podfile.Dir(run))
			if err != nil || is.Mode() != fs.ModeDir|0o700 {
				t.Errorf("%v, %v; want a directory of mode 0700", is.Mode(), err)
			}
		})
	}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(other, "kept")); err != nil {
			t.Errorf("what a link led to: %v", err)
		}
	})
}

func open777(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777)
}

func given(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, 65534, 65534)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := newAgent(t, t.TempDir(), newWorld(sized("huge", podfile.MaxFile), sized("fits", 64<<10-600)))
	for i := range 250 {
		r.world.put(sized(fmt.Sprint("u", i), 60<<10))
	}
	r.pass(false)
	if r.count(isTooLarge) != 1 || r.count(isWritten)+r.count(hasNoRoom) != 251 ||
		r.count(isWritten) != int(r.files.room()>>16) {
		t.Errorf("%d too large, %d written, %d without room", r.count(isTooLarge),
			r.count(isWritten), r.count(hasNoRoom))
	}
	r.wantSum()
	// Who had no room gets it when another one has gone, or has become smaller.
	for i := range 200 {
		delete(r.world.pods, fmt.Sprint("shop/u", i))
	}
	r.pass(false)
	if r.count(isWritten) != 51 || r.count(hasNoRoom) != 0 {
		t.Errorf("%d written, %d without room; want 51 and 0", r.count(isWritten),
			r.count(hasNoRoom))
	}
	r.world.put(sized("u249", podfile.MaxFile))
	r.pass(false)
	if found := pods(t, r.run); found["u249"] != "" || len(found) != 50 {
		t.Errorf("%d files, of the one that has become too large %q", len(found), found["u249"])
	}
	r.wantSum()
	if r.logs.Len() > 0 {
		t.Errorf("logged %v", r.logs.All())
	}
}

// wantSum compares what the files take with what is counted, and with the limit.
func (r *rig) wantSum() {
	r.t.Helper()
	var sum int64
	entries, err := os.ReadDir(podfile.Dir(r.run))
	must(r.t, err)
	for _, entry := range entries {
		is, err := entry.Info()
		must(r.t, err)
		if is.Size() > podfile.MaxFile {
			r.t.Errorf("%s has %d bytes", entry.Name(), is.Size())
		}
		if entry.Name() != podfile.FreshFile {
			sum += r.files.size(is.Size())
		}
	}
	if sum != r.files.bytes || sum > r.files.room() {
		r.t.Errorf("the files take %d bytes, counted are %d, the limit is %d", sum, r.files.bytes,
			r.files.room())
	}
}

// Where a page is 64 KiB, as of some kernels for arm64, a small file takes that much, too.
func TestLargePages(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 250 {
		w.put(sized(fmt.Sprint("u", i), 100))
	}
	r := newAgent(t, t.TempDir(), w)
	r.files.page = 64 << 10
	r.pass(true)
	n := r.count(isWritten)
	// The largest file that is being written, and .fresh twice.
	took := int64(n+3) * r.files.page
	if n == 0 || took > podfile.MaxAll || n+r.count(hasNoRoom) != 250 {
		t.Errorf("%d written, %d without room: they take %d bytes, want at most %d", n,
			r.count(hasNoRoom), took, int64(podfile.MaxAll))
	}
	r.wantSum()
}

func TestConventions(t *testing.T) {
	t.Parallel()
	r := newAgent(t, t.TempDir(), newWorld())
	families, err := r.reg.Gather()
	must(t, err)
	var found []string
	for _, family := range families {
		found = append(found, family.GetName())
		if !strings.HasSuffix(family.GetHelp(), ".") {
			t.Errorf("%s: %q", family.GetName(), family.GetHelp())
		}
	}
	want := []string{"sidecar_cni_pod_files", "sidecar_cni_pod_files_refreshed_timestamp_seconds"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// BenchmarkQuiet is what a node of 250 pods costs every ten seconds, while nothing happens.
func BenchmarkQuiet(b *testing.B) {
	w := newWorld()
	for i := range 250 {
		w.put(sized(fmt.Sprint("u", i), 2<<10))
	}
	r := newAgent(b, b.TempDir(), w)
	r.pass(true)
	for b.Loop() {
		r.pass(true)
	}
}
