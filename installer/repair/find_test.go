package repair_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// A pod's cgroup is called by the kubelet, its containers' by the runtime.
func TestPodsAreFoundByTheirProcesses(t *testing.T) {
	t.Parallel()
	uid := string(uidOf("web-0"))
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
			ns, n := netns.New(t), newNode(t, repair.Report)
			n.put(meshed("web-0", nil))
			n.process(4711, 1, ns.Path(), cgroups)
			n.process(4712, 1, netns.New(t).Path(),
				strings.ReplaceAll(strings.ReplaceAll(cgroups, uid, "0"+uid), under, "0"+under))
			x := n.want(n.pass(), repair.Missing, repair.Reported)
			if x.Netns.Inode != identify(t, ns).Inode || x.Netns.Path != "/proc/4711/ns/net" {
				t.Errorf("found %+v", x.Netns)
			}
		})
	}
}

func TestWhichProcessesCount(t *testing.T) {
	t.Parallel()
	const pause, app, conmon = 10, 20, 30
	pod := cgroupOf("web-0")
	rows := map[string]struct {
		run  func(n *node, its, other string)
		want repair.Finding
		why  string
	}{
		"several containers": {func(n *node, its, _ string) {
			n.process(pause, 1, its, pod)
			n.process(app, 1, its, pod)
		}, repair.Missing, ""},
		"a container within a container": {func(n *node, its, other string) {
			n.process(pause, 1, its, pod)
			n.process(app, pause, other, pod+"/docker/77")
		}, repair.Missing, ""},
		"a monitor in the host's network": {func(n *node, its, _ string) {
			n.process(conmon, 1, n.host.Path(), pod)
			n.process(app, conmon, its, pod)
		}, repair.Missing, ""},
		"one that looked out into the host's": {func(n *node, its, _ string) {
			n.process(pause, 1, its, pod)
			n.process(app, pause, n.host.Path(), pod)
		}, repair.Missing, ""},
		"one that has just ended": {func(n *node, its, _ string) {
			n.process(pause, 1, its, pod)
			n.process(app, 1, "/nowhere", pod)
		}, repair.Missing, ""},
		"a cgroup of a pod's name within another pod": {func(n *node, its, other string) {
			n.process(pause, 1, its, pod)
			n.put(plain("db-0"))
			n.process(app, 1, other, cgroupOf("db-0")+"/pod"+string(uidOf("web-0")))
		}, repair.Missing, ""},
		"two namespaces": {func(n *node, its, other string) {
			n.process(pause, 1, its, pod)
			n.process(app, 1, other, pod)
		}, repair.Unreachable, "two network namespaces"},
		"no process": {func(*node, string, string) {}, repair.Unreachable, "no process"},
		"only one in the host's network": {func(n *node, _, _ string) {
			n.process(app, 1, n.host.Path(), pod)
		}, repair.Unreachable, "no process"},
		"no network namespace": {func(n *node, _, _ string) {
			n.process(app, 1, "/etc/hosts", pod)
		}, repair.Unreachable, "it is no namespace: is the directory mounted without " +
			"HostToContainer"},
		"a user namespace": {func(n *node, _, _ string) {
			n.process(app, 1, fmt.Sprintf("/proc/%d/ns/uts", os.Getpid()), pod)
		}, repair.Unreachable, "enter network namespace"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, other, n := netns.New(t), netns.New(t), newNode(t, repair.Repair)
			pod := meshed("web-0", nil)
			n.put(pod)
			row.run(n, ns.Path(), other.Path())
			empty := rules(t, netns.New(t))
			outcome := repair.Outcome("")
			if row.want == repair.Missing {
				outcome = repair.Repaired
			}
			n.want(n.pass(), row.want, outcome, row.why)
			for who, one := range map[string]*netns.NS{"another's": other, "the host's": n.host} {
				if got := rules(t, one); got != empty {
					t.Errorf("rules in %s:\n%s", who, got)
				}
			}
			if (rules(t, ns) == empty) != (row.want != repair.Missing) {
				t.Errorf("rules in the pod's:\n%s", rules(t, ns))
			}
		})
	}
}

// A record's path may come to lead elsewhere: to the host's namespace, that of another pod, or
// nowhere.
func TestOnlyTheNamespaceThatWasRecordedIsEntered(t *testing.T) {
	t.Parallel()
	rows := map[string]func(n *node, other *netns.NS) string{
		"another pod's":    func(n *node, other *netns.NS) string { return mounted(n.t, other) },
		"the host's":       func(n *node, _ *netns.NS) string { return mounted(n.t, n.host) },
		"nowhere":          func(*node, *netns.NS) string { return "/nowhere/netns" },
		"a file":           func(*node, *netns.NS) string { return "/etc/hosts" },
		"a process of its": func(*node, *netns.NS) string { return "/proc/9999/ns/net" },
	}
	for name, path := range rows {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, running: %v", name, running), func(t *testing.T) {
				t.Parallel()
				ns, other, n := netns.New(t), netns.New(t), newNode(t, repair.Repair)
				r := recordOf(t, "web-0", nftBackend, ns)
				r.Netns.Path = path(n, other)
				n.write(r)
				n.put(meshed("web-0", nil))
				if running {
					n.process(50, 1, ns.Path(), cgroupOf("web-0"))
					x := n.want(n.pass(), repair.Missing, repair.Repaired)
					if x.Netns.Inode != r.Netns.Inode {
						t.Errorf("found %+v", x.Netns)
					}
				} else {
					n.want(n.pass(), repair.Unreachable, "", "by record", "by cgroup")
				}
				empty := rules(t, netns.New(t))
				for who, one := range map[string]*netns.NS{"another's": other,
					"the host's": n.host} {
					if got := rules(t, one); got != empty {
						t.Errorf("rules in %s:\n%s", who, got)
					}
				}
			})
		}
	}
}

// Even if a record claims to be about it.
func TestTheHostsNamespaceIsNeverEntered(t *testing.T) {
	t.Parallel()
	n := newNode(t, repair.Repair)
	n.put(meshed("web-0", nil))
	n.write(recordOf(t, "web-0", nftBackend, n.host))
	n.process(50, 1, n.host.Path(), cgroupOf("web-0"))
	n.want(n.pass(), repair.Unreachable, "", "the host's")
	if got := rules(t, n.host); got != rules(t, netns.New(t)) {
		t.Errorf("rules in the host's:\n%s", got)
	}
}

// That is where this test runs, so nobody is asked to repair anything.
func TestTheAgentsNamespaceIsNeverEntered(t *testing.T) {
	t.Parallel()
	n := newNode(t, repair.Report)
	n.put(meshed("web-0", nil))
	r := recordOf(t, "web-0", nftBackend, n.host)
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	r.Netns = record.Netns{Path: filepath.Join(t.TempDir(), "cni-1"), Device: st.Dev, Inode: st.Ino}
	if err := os.Symlink("/proc/thread-self/ns/net", r.Netns.Path); err != nil {
		t.Fatal(err)
	}
	n.write(r)
	n.process(50, 1, "/proc/thread-self/ns/net", cgroupOf("web-0"))
	n.want(n.pass(), repair.Unreachable, "", "the agent runs in it", "no process")
}

// Without the host's first process nobody can tell the host's namespace from a pod's: a record can,
// since ADD could.
func TestWithoutTheHostsProcesses(t *testing.T) {
	t.Parallel()
	rows := map[string]func(*node){
		"no /proc of the host's": func(n *node) { n.config.HostProc = "" },
		"a first process that hides": func(n *node) {
			if err := os.RemoveAll(filepath.Join(n.proc, "1")); err != nil {
				n.t.Fatal(err)
			}
		},
	}
	for name, hide := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			n.run(meshed("web-0", nil), ns)
			hide(n)
			n.want(n.pass(), repair.Unreachable, "", "the host's")
			n.write(recordOf(t, "web-0", nftBackend, ns))
			n.want(n.pass(), repair.Missing, repair.Repaired)
			n.want(n.pass(), repair.Redirected, "")
		})
	}
}
