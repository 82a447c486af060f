package hostproc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// Hierarchies are where the kernel has cgroups: of v2, and of a controller of v1 if there are any.
func Hierarchies(t testing.TB) map[string]string {
	t.Helper()
	const root = "/sys/fs/cgroup"
	found := map[string]string{}
	for name, dir := range map[string]string{"v2": root, "v2 beside v1": root + "/unified",
		"v1": root + "/pids"} {
		_, v2 := os.Stat(dir + "/cgroup.controllers")
		_, there := os.Stat(dir + "/cgroup.procs")
		if there == nil && (v2 == nil) == strings.HasPrefix(name, "v2") {
			found[name] = dir
		}
	}
	if len(found) == 0 {
		t.Fatal("no cgroups under " + root)
	}
	return found
}

// cgroups counts them, for names.
var cgroups atomic.Int32

// Cgroup makes a cgroup below one of the test's own, and removes both with the test.
func Cgroup(t testing.TB, hierarchy, path string) string {
	t.Helper()
	dir := filepath.Join(hierarchy,
		fmt.Sprintf("sidecar-cni-test-%d-%d", os.Getpid(), cgroups.Add(1)), path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for ; dir != hierarchy; dir = filepath.Dir(dir) {
			// A process that has ended leaves its cgroup a moment later.
			var err error
			if !await.Within(time.Minute, func() bool {
				err = os.Remove(dir)
				return err == nil || errors.Is(err, os.ErrNotExist)
			}) {
				t.Error(err)
			}
		}
	})
	return dir
}
