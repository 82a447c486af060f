package main_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// freshness is what the plugin makes of the lock that says that the files of pods are fresh.
func freshness(dir string) string {
	f, err := os.Open(filepath.Join(dir, podfile.FreshFile))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		return "nobody holds it"
	}
	return "fresh"
}

func (r *rig) untilFresh() {
	r.t.Helper()
	await.Until(r.t, "the files of pods are fresh",
		func() bool { return freshness(r.path("run", "pods")) == "fresh" })
}

// podFiles are the names of the files of pods, and of what else is there but the agent's mark.
func (r *rig) podFiles() []string {
	r.t.Helper()
	entries, err := os.ReadDir(r.path("run", "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r.must(err)
	all := []string{}
	for _, entry := range entries {
		if entry.Name() != ".taken" {
			all = append(all, entry.Name())
		}
	}
	return all
}

func (r *rig) untilPodFiles(want ...string) {
	r.t.Helper()
	await.Until(r.t, "there are other files of pods", func() bool {
		return slices.Equal(slices.Sorted(slices.Values(want)), r.podFiles())
	})
}

// The files live longer than an agent, and no longer than the installation.
func TestPodFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	first, second := meshed("web-0"), meshed("web-1")
	first.UID, second.UID = "u0", "u1"
	r.api.Put(first, second)
	d := r.start()
	r.untilFresh()
	r.untilPodFiles(podfile.FreshFile, "u0", "u1")
	d.kill()
	if got := freshness(r.path("run", "pods")); got != "nobody holds it" {
		t.Errorf("after a kill: %s", got)
	}

	r.api.Break(apiserver.Cut)
	r.api.Remove(second)
	d = r.start()
	await.Until(t, "the agent is in charge", func() bool { return len(d.logged("evaluated node")) > 0 })
	r.untilPodFiles(podfile.FreshFile, "u0", "u1")
	if got := freshness(r.path("run", "pods")); got != "nobody holds it" {
		t.Errorf("without an API server: %s", got)
	}
	r.api.Break(nil)
	r.untilPodFiles(podfile.FreshFile, "u0")
	r.untilFresh()
	d.stop()

	before := r.tree(".")
	if out, err := r.run("run", "--dry-run"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(before, r.tree(".")); diff != "" {
		t.Errorf("dry run changed something (-before +after):\n%s", diff)
	}
	if got := r.podFiles(); !slices.Equal(got, []string{podfile.FreshFile, "u0"}) {
		t.Errorf("after a dry run there are %q", got)
	}
	d = r.start()
	r.untilFresh()
	if out, err := r.run("uninstall"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.api.Put(second)
	await.Until(t, "the daemon has the new pod",
		func() bool { return d.metric("sidecar_cni_cached_pods") == "2" })
	d.says(503, "uninstalled")
	if got := r.podFiles(); got != nil {
		t.Errorf("after an uninstallation there are %q", got)
	}
}

// During an update there is always one agent that keeps the files.
func TestPodFilesDuringAnUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	pod := meshed("web-0")
	pod.UID = "u0"
	r.api.Put(pod)
	old := r.start()
	r.untilFresh()
	young := r.start()
	await.Until(t, "the young one writes the files", func() bool {
		return young.metric(`sidecar_cni_pod_files{state="written"}`) == "1"
	})
	r.untilFresh()
	other := meshed("web-1")
	other.UID = "u1"
	r.api.Put(other)
	r.untilPodFiles(podfile.FreshFile, "u0", "u1")
	await.Until(t, "the old one has let go", func() bool {
		return old.metric(`sidecar_cni_pod_files{state="written"}`) == "0"
	})
	young.kill()
	r.api.Remove(other)
	r.untilPodFiles(podfile.FreshFile, "u0")
	r.untilFresh()
	if len(old.logged("pod files not up to date")) > 0 {
		t.Error("the old one logged that another one is in charge")
	}
}
