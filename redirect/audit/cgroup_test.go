package audit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

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
	for name, hierarchy := range hostproc.Hierarchies(t) {
		for _, its := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, in a namespace of its own: %v", name, its), func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				ns := n.host
				if its {
					ns = netns.New(t)
				}
				pod := n.pod(fmt.Sprint(its), nil)
				dir := hostproc.Cgroup(t, hierarchy,
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
