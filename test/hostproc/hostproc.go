// Package hostproc plays the /proc of a node, with processes that are in network namespaces and in
// the cgroups of pods.
//
//	proc := hostproc.New(t, host)
//	proc.Add(t, hostproc.Process{PID: 50, Parent: 1, Netns: pod.Path(), Cgroups: hostproc.CgroupOf(uid)})
//
// Be aware: a process that is played has no more than these: cgroup, stat and ns/net.
package hostproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// Dir is where it is.
type Dir string

// Process is one that is played.
type Process struct {
	PID, Parent int
	Netns       string // path of a network namespace
	Cgroups     string // what is in its file cgroup
}

// New makes one, in which process 1 is in the namespace of the host.
func New(t testing.TB, host *netns.NS) Dir {
	t.Helper()
	d := Dir(t.TempDir())
	d.Add(t, Process{PID: 1, Netns: host.Path(), Cgroups: "0::/init.scope"})
	return d
}

// Add puts a process into it.
func (d Dir) Add(t testing.TB, p Process) {
	t.Helper()
	dir := filepath.Join(string(d), fmt.Sprint(p.PID))
	if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("%d (a) b) (c) S %d 7 8", p.PID, p.Parent)
	for name, content := range map[string]string{"cgroup": p.Cgroups + "\n", "stat": stat} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(p.Netns, filepath.Join(dir, "ns/net")); err != nil {
		t.Fatal(err)
	}
}

// See puts a real process into it.
func (d Dir) See(t testing.TB, pid int) {
	t.Helper()
	if err := os.Symlink(fmt.Sprintf("/proc/%d", pid),
		filepath.Join(string(d), fmt.Sprint(pid))); err != nil {
		t.Fatal(err)
	}
}

// CgroupOf is the cgroup of a container in the pod with a uid, as systemd and containerd call it.
func CgroupOf(uid string) string {
	return "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") +
		".slice/cri-containerd-0a1b.scope"
}
