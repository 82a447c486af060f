package repair_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

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
			if err := os.RemoveAll(filepath.Join(string(n.proc), "1")); err != nil {
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
