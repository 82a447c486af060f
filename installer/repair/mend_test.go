package repair_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
)

// programs is where the plugin is built, once for all tests and only if one needs it.
var programs string

var built = sync.OnceValue(func() error {
	cmd := exec.Command("go", "build", "-C", "../..", "-o", programs+"/", "./plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "repair"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(programs)
	os.Exit(code)
}

// callADD has the plugin itself redirect a pod that the API server knows.
func (n *node) callADD(name, backend string, ns *netns.NS) {
	n.t.Helper()
	if err := built(); err != nil {
		n.t.Fatal(err)
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": "sidecar-cni", "backend": backend,
		"agentSocket": "/nowhere/agent.sock", "kubeconfig": n.api.Kubeconfig(),
		"stateDir":   string(n.config.Records),
		"prevResult": map[string]any{"cniVersion": "1.0.0"},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, "plugin"))
	cmd.Stdin = strings.NewReader(string(conf))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=0a1b", "CNI_IFNAME=eth0",
		"CNI_NETNS="+ns.Path(), "CNI_PATH=/nowhere",
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=%s;K8S_POD_UID=%s", name, uidOf(name)))
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
}

// A repaired pod is in every respect one that ADD has redirected; only the sandbox's id stays
// unknown.
func TestARepairedPodIsAsADDLeavesIt(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for name, annotations := range map[string]map[string]string{
			"plain": nil, "with a port excluded": {excludePort: "22"},
			"TPROXY": {"sidecar.istio.io/interceptionMode": "TPROXY"},
		} {
			t.Run(backend+"/"+name, func(t *testing.T) {
				t.Parallel()
				byADD, byUs, n := netns.New(t), netns.New(t), newNode(t, repair.Repair)
				n.backend = backend
				n.put(meshed("web-0", annotations))
				n.callADD("web-0", backend, byADD)
				want, err := n.config.Records.Read(record.Attachment{Container: "0a1b",
					Interface: "eth0"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := n.config.Records.Delete(want.Attachment); err != nil {
					t.Fatal(err)
				}
				n.process(50, 1, byUs.Path(), cgroupOf("web-0"))
				n.want(n.pass(), repair.Missing, repair.Repaired)
				if diff := cmp.Diff(rules(t, byADD), rules(t, byUs)); diff != "" {
					t.Errorf("rules (-ADD +repair):\n%s", diff)
				}
				have := n.onlyRecord()
				want.Attachment = record.Attachment{Container: "repair-" + string(uidOf("web-0")),
					Interface: "eth0"}
				want.Netns = record.Netns{Path: "/proc/50/ns/net", Device: identify(t, byUs).Device,
					Inode: identify(t, byUs).Inode}
				want.Network = ""
				if diff := cmp.Diff(want, have, byText); diff != "" {
					t.Errorf("record (-ADD +repair):\n%s", diff)
				}
				for range 2 {
					n.want(n.pass(), repair.Redirected, "")
				}
			})
		}
	}
}

var byText = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func (n *node) onlyRecord() record.Record {
	n.t.Helper()
	all, err := n.config.Records.List()
	if err != nil || len(all) != 1 {
		n.t.Fatalf("%d records, error %v: %+v", len(all), err, all)
	}
	return all[0]
}

func TestARecordedPodIsRepairedByItsRecord(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(meshed("web-0", map[string]string{excludePort: "nonsense by now"}), ns)
	r := n.add("web-0", nftBackend, ns)
	before := rules(t, ns)
	r.Revision = "0123456789abcdef" // by another version, of which nothing is left
	n.write(r)
	ns.Run(t, "", "nft", "flush", "ruleset")
	n.want(n.pass(), repair.Missing, repair.Repaired)
	if diff := cmp.Diff(before, rules(t, ns)); diff != "" {
		t.Errorf("rules (-before +after):\n%s", diff)
	}
	r.Revision = recordOf(t, "web-0", nftBackend, ns).Revision
	if diff := cmp.Diff(r, n.onlyRecord(), byText); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// A Docker inside a pod has redirections of its own, none of which leads to the proxy: the pod is
// open until it is repaired, and what Docker published is published still.
func TestAPodWithDockerInsideIsRepaired(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for _, docker := range []string{iptNFT, iptLegacy} {
			for _, recorded := range []bool{true, false} {
				name := fmt.Sprintf("%s, Docker by %s, recorded: %v", backend, docker, recorded)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					pod, n := netns.NewPod(t, netns.Options{}), newNode(t, repair.Repair)
					n.backend = backend
					n.run(meshed("web-0", nil), pod.NS)
					if recorded {
						n.write(recordOf(t, "web-0", backend, pod.NS))
					}
					pod.Run(t, othertools.Docker, docker+"-restore")
					pod.Listen(t, netns.Listener{
						Who: "proxy", As: netns.Identity{UID: 1337, GID: 1337},
						TCP: []uint16{15001},
					})
					to := netip.MustParseAddrPort("192.0.2.7:80")
					call := netns.Call{As: netns.Identity{UID: 1000, GID: 1000}, Network: "tcp",
						To: to}
					if got := pod.Dial(t, call); got.Who != "peer" {
						t.Fatalf("before, a connection was %v; want it to leave the pod", got)
					}
					n.want(n.pass(), repair.Missing, repair.Repaired)
					if got := pod.Dial(t, call); got.Who != "proxy" || got.Original != call.To {
						t.Errorf("a connection was %v; want the proxy to have it\n%s", got,
							rules(t, pod.NS))
					}
					if !strings.Contains(rules(t, pod.NS), "172.17.0.2:15001") {
						t.Errorf("Docker's rules are gone:\n%s", rules(t, pod.NS))
					}
					n.want(n.pass(), repair.Redirected, "")
				})
			}
		}
	}
}

// The path that lasts is that of the mount; a process' one goes with the process.
func TestWhatIsRecordedIsTheMount(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(meshed("web-0", nil), ns)
	at := identify(t, ns)
	mountinfo := fmt.Sprintf("22 1 0:4 net:[1] /run/netns/cni-a rw shared:5 - nsfs none rw\n23 1 "+
		"0:4 net:[%d] %s rw shared:6 - nsfs none rw\n", at.Inode, at.Path)
	if err := os.WriteFile(filepath.Join(string(n.proc), "1/mountinfo"), []byte(mountinfo),
		0o600); err != nil {
		t.Fatal(err)
	}
	n.want(n.pass(), repair.Missing, repair.Repaired)
	if diff := cmp.Diff(at, n.onlyRecord().Netns); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestAUserNamespaceOfItsOwnIsRepairedByNFTables(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.NewInUserNamespace(t), newNode(t, repair.Repair)
			n.backend = backend
			n.run(meshed("web-0", nil), ns)
			n.want(n.pass(), repair.Missing, repair.Repaired)
			if r := n.onlyRecord(); r.Backend != nftBackend ||
				!strings.Contains(rules(t, ns), "table inet sidecar-cni") {
				t.Errorf("backend %s, rules\n%s", r.Backend, rules(t, ns))
			}
			n.want(n.pass(), repair.Redirected, "")
		})
	}
}

func TestARepairThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		change func(*node)
		why    []string
	}{
		"annotations ask for the impossible": {func(n *node) {
			pod := n.api.Pod("shop", "web-0").DeepCopy()
			pod.Annotations[excludePort] = "ssh"
			n.api.Put(pod)
		}, []string{"read annotations", excludePort, "ssh"}},
		"no iptables where it is looked for": {func(n *node) {
			n.backend, n.config.InRoot = iptNFT, inRoot(n.t.TempDir())
		}, []string{"find iptables-nft"}},
		"a backend that nobody knows": {func(n *node) {
			n.backend = "ebpf"
		}, []string{`find backend "ebpf"`}},
		"a node on which nothing works yet": {func(n *node) {
			n.backend = ""
		}, []string{"find backend: none works on this node yet, the agent's /readyz says why"}},
		"no place for the record": {func(n *node) {
			if err := os.WriteFile(string(n.config.Records), nil, 0o600); err != nil {
				n.t.Fatal(err)
			}
		}, []string{"write record"}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			n.run(meshed("web-0", nil), ns)
			row.change(n)
			// Records that cannot be listed are an error of the pass as well.
			s, _ := n.try(t.Context())
			n.want(s, repair.Missing, repair.Failed, row.why...)
			event := n.awaitEvent("SidecarRepairFailed")
			if event.Type != "Warning" || !strings.Contains(event.Message, row.why[0]) {
				t.Errorf("event %s: %s", event.Type, event.Message)
			}
			if pod := n.api.Pod("shop", "web-0"); pod.Labels[repair.Label] != "missing" {
				t.Errorf("labels %v", pod.Labels)
			}
		})
	}
}

// inRoot calls a function on a thread with another root directory.
func inRoot(root string) func(func() error) error {
	return func(do func() error) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(root))
			if err == nil {
				err = unix.Chdir("/")
			}
			if err == nil {
				err = do()
			}
			done <- err
		}()
		return <-done
	}
}

func TestIptablesRunsInTheRootThatIsGiven(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{iptNFT, iptLegacy} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			n.backend, n.config.InRoot = backend, inRoot("/")
			n.run(meshed("web-0", nil), ns)
			n.want(n.pass(), repair.Missing, repair.Repaired)
			n.want(n.pass(), repair.Redirected, "")
			n.config.InRoot, n.repairer = inRoot(t.TempDir()), nil
			n.want(n.pass(), repair.Foreign, "", "cannot be compared", "find iptables")
		})
	}
}

// Nothing else runs while this one does: a thread that is not at home did not come back.
func TestEveryThreadComesHome(t *testing.T) {
	n := newNode(t, repair.Repair)
	for i := range 20 {
		n.run(meshed(fmt.Sprintf("web-%d", i), nil), netns.New(t))
	}
	for _, backend := range backends {
		n.backend = backend
		for _, x := range n.pass().Results {
			if x.Outcome != repair.Repaired && x.Finding != repair.Redirected {
				t.Errorf("%s: %s %s: %s %v", x.Name, x.Finding, x.Outcome, x.Why, x.Err)
			}
		}
	}
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads %v, error %v", threads, err)
	}
	for _, thread := range threads {
		if at, err := os.Readlink(thread); err == nil && at != own {
			t.Errorf("%s is in %s, not in %s", thread, at, own)
		}
	}
}

// Beside another mesh's plugin nothing is mended: that may be about to do it.
func TestNothingIsMendedWhileItIsHeld(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t, repair.Repair)
	n.run(meshed("web-0", nil), ns)
	n.hold = true
	n.want(n.pass(), repair.Missing, repair.Reported)
	if rules(t, ns) != rules(t, netns.New(t)) {
		t.Errorf("rules\n%s", rules(t, ns))
	}
	n.hold = false
	n.want(n.pass(), repair.Missing, repair.Repaired)
}

// Docker starts a pod's first process and then its network: the ADD may still be under way. A
// record says that it is over.
func TestAnADDMayBeUnderWay(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		docker, recorded bool
		want             repair.Finding
	}{
		"network first":           {false, false, repair.Missing},
		"process first":           {true, false, repair.Starting},
		"process first, recorded": {true, true, repair.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Repair)
			n.docker = row.docker
			n.run(meshed("web-0", nil), ns)
			if row.recorded {
				n.write(recordOf(t, "web-0", nftBackend, ns))
			}
			outcome := map[repair.Finding]repair.Outcome{repair.Missing: repair.Repaired}[row.want]
			n.want(n.pass(), row.want, outcome)
			if open := rules(t, ns) == rules(t,
				netns.New(t)); open != (row.want == repair.Starting) {
				t.Errorf("rules\n%s", rules(t, ns))
			}
		})
	}
}
