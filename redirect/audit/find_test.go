package audit_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// A pod's cgroup is called by the kubelet, its containers' by the runtime.
func TestPodsAreFoundByTheirProcesses(t *testing.T) {
	t.Parallel()
	uid := uidOf("web-0")
	under := strings.ReplaceAll(uid, "-", "_")
	rows := map[string]string{
		"v2, systemd, containerd": "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-0a1b.scope",
		"v2, systemd, CRI-O":      "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-0a1b.scope/container",
		"v2, systemd, guaranteed": "0::/kubepods.slice/kubepods-pod" + under +
			".slice/cri-containerd-0a1b.scope",
		"v2, cgroupfs": "0::/kubepods/burstable/pod" + uid + "/0a1b",
		"v2, seen from another cgroup": "0::/../../kubepods-burstable-pod" + under +
			".slice/cri-containerd-0a1b.scope",
		"v2, kind": "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under +
			".slice/cri-containerd-0a1b.scope",
		"v2, systemd within the container": "0::/kubepods.slice/kubepods-pod" + under +
			".slice/cri-containerd-0a1b.scope/system.slice/cron.service",
		"v1, cgroupfs": "12:pids:/kubepods/besteffort/pod" + uid +
			"/0a1b\n1:name=systemd:/kubepods/besteffort/pod" + uid + "/0a1b\n0::/",
		"v1, systemd": "12:cpu,cpuacct:/kubepods.slice/kubepods-pod" +
			under + ".slice/docker-0a1b.scope\n0::/system.slice/containerd.service",
		"v1, drivers that disagree": "3:memory:/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:0a1b",
		"v1, only systemd's hierarchy has it": "2:cpuset:/\n1:name=systemd:/kubepods/pod" + uid +
			"/crio-0a1b",
		"a cluster within a pod of another": "0::/kubepods/pod11111111-2222-3333-4444-555555555555/0a1b/kubelet/kubepods/pod" + uid + "/0c1d",
	}
	for name, cgroups := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.process(4711, 1, ns.Path(), cgroups)
			n.process(4712, 1, netns.New(t).Path(),
				strings.ReplaceAll(strings.ReplaceAll(cgroups, uid, "0"+uid), under, "0"+under))
			at := n.want(n.pod("web-0", nil), audit.Missing)
			if at.Inode != identify(t, ns).Inode || at.Path != "/proc/4711/ns/net" {
				t.Errorf("found %+v", at)
			}
		})
	}
}

func TestWhichProcessesCount(t *testing.T) {
	t.Parallel()
	const pause, app, conmon = 10, 20, 30
	pod := hostproc.CgroupOf(uidOf("web-0"))
	rows := map[string]struct {
		run  func(n *node, its, other string)
		want audit.Finding
		why  string
	}{
		"several containers": {func(n *node, its, _ string) {
			n.process(pause, 1, its, pod)
			n.process(app, 1, its, pod)
		}, audit.Missing, ""},
		"a container within a container": {func(n *node, its, other string) {
			n.process(pause, 1, its, pod)
			n.process(app, pause, other, pod+"/docker/77")
		}, audit.Missing, ""},
		"a monitor in the host's network": {func(n *node, its, _ string) {
			n.process(conmon, 1, n.host.Path(), pod)
			n.process(app, conmon, its, pod)
		}, audit.Missing, ""},
		"one that looked out into the host's": {func(n *node, its, _ string) {
			n.process(pause, 1, its, pod)
			n.process(app, pause, n.host.Path(), pod)
		}, audit.Missing, ""},
		"one that has just ended": {func(n *node, its, _ string) {
			n.process(pause, 1, its, pod)
			n.process(app, 1, "/nowhere", pod)
		}, audit.Missing, ""},
		"a cgroup of a pod's name within another pod": {func(n *node, its, other string) {
			n.process(pause, 1, its, pod)
			n.names = append(n.names, "db-0")
			n.process(app, 1, other, hostproc.CgroupOf(uidOf("db-0"))+"/pod"+uidOf("web-0"))
		}, audit.Missing, ""},
		"two namespaces": {func(n *node, its, other string) {
			n.process(pause, 1, its, pod)
			n.process(app, 1, other, pod)
		}, audit.Unreachable, "two network namespaces"},
		"no process": {func(*node, string, string) {}, audit.Unreachable, "no process"},
		"only one in the host's network": {func(n *node, _, _ string) {
			n.process(app, 1, n.host.Path(), pod)
		}, audit.Unreachable, "no process"},
		"no network namespace": {func(n *node, _, _ string) {
			n.process(app, 1, "/etc/hosts", pod)
		}, audit.Unreachable, "it is no namespace: is the directory mounted without " +
			"HostToContainer"},
		"a namespace of another kind": {func(n *node, _, _ string) {
			n.process(app, 1, fmt.Sprintf("/proc/%d/ns/uts", os.Getpid()), pod)
		}, audit.Unreachable, "it is a namespace, but no network namespace"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, other, n := netns.New(t), netns.New(t), newNode(t)
			row.run(n, ns.Path(), other.Path())
			at := n.want(n.pod("web-0", nil), row.want, row.why)
			if row.want == audit.Missing && at.Inode != identify(t, ns).Inode {
				t.Errorf("found %+v", at)
			}
		})
	}
}
