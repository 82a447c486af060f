package audit_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// hierarchies are where the kernel has cgroups: of v2, and of a controller of v1 if there are any.
func hierarchies(t *testing.T) map[string]string {
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

// cgroup makes a cgroup below one of the test's own, and removes both.
func cgroup(t *testing.T, hierarchy, path string) string {
	t.Helper()
	dir := filepath.Join(hierarchy,
		fmt.Sprintf("sidecar-cni-audit-%d-%d", os.Getpid(), cgroups.Add(1)), path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for ; dir != hierarchy; dir = filepath.Dir(dir) {
			// A process that has ended leaves its cgroup a moment later.
			for deadline := time.Now().Add(5 * time.Second); ; {
				err := os.Remove(dir)
				if err == nil || errors.Is(err, os.ErrNotExist) {
					break
				}
				if time.Now().After(deadline) {
					t.Error(err)
					break
				}
			}
		}
	})
	return dir
}

// sleeper is a process in a namespace and a cgroup, until the test ends.
func sleeper(t *testing.T, ns *netns.NS, dir string) int {
	t.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err == nil {
		ns.Do(t, func() { err = cmd.Start() })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid),
		0); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// The kernel's own cgroups, and processes in them. Of the host's only the first process is played.
func TestRealProcessesInRealCgroups(t *testing.T) {
	t.Parallel()
	for name, hierarchy := range hierarchies(t) {
		for _, its := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, in a namespace of its own: %v", name, its), func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				ns := n.host
				if its {
					ns = netns.New(t)
				}
				pod := n.pod(fmt.Sprint(its), nil)
				dir := cgroup(t, hierarchy,
					"kubepods.slice/kubepods-pod"+strings.ReplaceAll(pod.UID, "-", "_")+
						".slice/cri-containerd-0a1b.scope")
				pid := sleeper(t, ns, dir)
				n.proc.See(t, pid)
				if !its {
					n.want(pod, audit.Unreachable, "no process")
					return
				}
				at := n.want(pod, audit.Missing)
				if at.Path != fmt.Sprintf("/proc/%d/ns/net", pid) ||
					at.Inode != identify(t, ns).Inode {
					t.Errorf("found %+v", at)
				}
			})
		}
	}
}
