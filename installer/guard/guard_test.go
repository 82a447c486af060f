package guard_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/hostroot"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/nriserver"
)

// table is how nft calls what we write.
const table = "table inet sidecar-cni"

func rules(t *testing.T, ns *netns.NS) string {
	t.Helper()
	return ns.Run(t, "", "nft", "--stateless", "list", "ruleset")
}

func identify(t testing.TB, ns *netns.NS) record.Netns {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	return record.Netns{Path: ns.Path(), Device: st.Dev, Inode: st.Ino}
}

// byIstioInit is what istio-init's container writes, shortened.
const byIstioInit = `*nat
:ISTIO_REDIRECT - [0:0]
-A OUTPUT -p tcp -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`

// policyOf is what a pod with a sidecar asks for.
func policyOf(t *testing.T) redirect.Policy {
	t.Helper()
	d, err := redirect.Decide(redirect.Pod{Namespace: "shop", Name: "web",
		Annotations: map[string]string{statusKey: "{}"},
		Spec:        &redirect.Spec{Containers: []redirect.Container{{Name: "istio-proxy"}}},
	}, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return d.Policy
}

// program writes our rules, and no record.
func program(t *testing.T, ns *netns.NS) {
	t.Helper()
	b, err := backend.Find(redirect.NFTables)
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() { _, _, err = b.Apply(t.Context(), redirect.Compile(policyOf(t))) })
	if err != nil {
		t.Fatal(err)
	}
}

// What becomes of a sandbox whose network was set up, and what is looked at for it.
func TestWhatBecomesOfASandbox(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	type situation struct {
		pod     *corev1.Pod
		prepare func(t *testing.T, n *node, ns *netns.NS, s *nriserver.Pod)

		want   string   // the outcome
		unread bool     // the whole pod is not asked for
		words  []string // of a refusal
	}
	recordOf := func(t *testing.T, s *nriserver.Pod, at record.Netns) record.Record {
		return record.Record{Attachment: record.Attachment{Container: s.ID, Interface: "eth0"},
			Netns: at, Backend: redirect.NFTables, Policy: policyOf(t)}
	}
	containers := func(change func(*corev1.PodSpec)) *corev1.Pod {
		pod := meshed("web", nil)
		change(&pod.Spec)
		return pod
	}
	nowhere := func(_ *testing.T, _ *node, _ *netns.NS, s *nriserver.Pod) {
		s.NetnsPath = "/nonexistent" // whoever opens it fails
	}
	for title, row := range map[string]situation{
		"not injected": {
			pod:     func() *corev1.Pod { p := meshed("web", nil); delete(p.Annotations, statusKey); return p }(),
			prepare: nowhere, want: "skipped", unread: true,
		},
		"in an excluded namespace": {
			pod:     func() *corev1.Pod { p := meshed("web", nil); p.Namespace = "kube-system"; return p }(),
			prepare: nowhere, want: "skipped", unread: true,
		},
		"static": {pod: meshed("web", map[string]string{"kubernetes.io/config.source": "file"}),
			prepare: nowhere, want: "skipped", unread: true},
		"that captures nothing": {
			pod:     meshed("web", map[string]string{"sidecar.istio.io/interceptionMode": "NONE"}),
			prepare: nowhere, want: "skipped", unread: true,
		},
		"in the host's network": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, _ *node, _ *netns.NS, s *nriserver.Pod) { s.NetnsPath = "" },
			want:    "skipped", unread: true},
		"of which the runtime tells no namespace": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, _ *node, _ *netns.NS, s *nriserver.Pod) {
				s.NetnsPath = nriserver.Untold
			}, want: "refused", words: []string{"does not tell its network namespace"}},
		"that, in the host's network": {pod: containers(func(s *corev1.PodSpec) {
			s.HostNetwork = true
		}), prepare: func(_ *testing.T, _ *node, _ *netns.NS, s *nriserver.Pod) {
			s.NetnsPath = nriserver.Untold
		}, want: "skipped"},
		"that repair has redirected": {pod: meshed("web", nil),
			prepare: func(t *testing.T, n *node, ns *netns.NS, s *nriserver.Pod) {
				r := recordOf(t, s, identify(t, ns))
				r.Attachment = record.StandIn(s.UID)
				if err := n.config.Records.Write(r); err != nil {
					t.Fatal(err)
				}
			}, want: "redirected"},
		"that ADD has redirected": {pod: meshed("web", nil), unread: true,
			prepare: func(t *testing.T, n *node, ns *netns.NS, s *nriserver.Pod) {
				if err := n.config.Records.Write(recordOf(t, s, identify(t, ns))); err != nil {
					t.Fatal(err)
				}
			}, want: "recorded"},
		"whose record is of another namespace": {pod: meshed("web", nil),
			prepare: func(t *testing.T, n *node, _ *netns.NS, s *nriserver.Pod) {
				if err := n.config.Records.Write(
					recordOf(t, s, identify(t, netns.New(t)))); err != nil {
					t.Fatal(err)
				}
			}, want: "redirected"},
		"that another tool redirects": {pod: meshed("web", nil), unread: true,
			prepare: func(t *testing.T, _ *node, ns *netns.NS, _ *nriserver.Pod) {
				ns.Run(t, byIstioInit, "iptables-nft-restore")
			}, want: "foreign"},
		"with istio-init to come": {pod: containers(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "istio-init"}}
		}), want: "skipped"},
		"of a gateway": {pod: containers(func(s *corev1.PodSpec) {
			s.Containers[1].Args = []string{"proxy", "router"}
		}), want: "skipped"},
		"that nobody has redirected": {pod: meshed("web", nil), want: "redirected"},
		"with rules of ours that nobody recorded": {pod: meshed("web", nil),
			prepare: func(t *testing.T, _ *node, ns *netns.NS, _ *nriserver.Pod) {
				program(t, ns)
			}, want: "redirected"},
		"with rules that another tool has left": {pod: meshed("web", nil),
			prepare: func(t *testing.T, _ *node, ns *netns.NS, _ *nriserver.Pod) {
				ns.Run(t, "*nat\n:ISTIO_REDIRECT - [0:0]\nCOMMIT\n", "iptables-nft-restore")
			}, want: "refused", words: []string{"its network namespace has chain ISTIO_REDIRECT",
				"remedy: create the pod anew"}},
		"that asks for something impossible": {
			pod:  meshed("web", map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "x"}),
			want: "refused", words: []string{"shop/web", "excludeOutboundPorts", `"x"`,
				"remedy: correct the pod's annotations"},
		},
		"that nobody knows": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) { delete(n.pods, "web") },
			want:    "refused", words: []string{"no such pod", "remedy: "}},
		"of which nobody answers": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) { n.hang = true },
			want:    "refused", words: []string{"remedy: "}},
		"in mode refuse": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) {
				n.config.Mode = guard.Refuse
			}, want: "refused", words: []string{"nobody redirected it", "guard.mode auto"}},
		"where nothing can program rules": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) { n.backend = "" },
			want:    "refused", words: []string{"/readyz"}},
		"where iptables of the host programs rules": {pod: meshed("web", nil),
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) {
				n.backend = redirect.IptablesNFT
				n.config.InRoot = func(do func() error) error { return hostroot.InRoot("/", do) }
			}, want: "redirected"},
		"whose namespace is the host's": {pod: meshed("web", nil), unread: true,
			prepare: func(_ *testing.T, n *node, _ *netns.NS, s *nriserver.Pod) {
				s.NetnsPath = filepath.Join(n.proc, "1/ns/net")
			}, want: "refused", words: []string{"it is the host's"}},
		"whose namespace is not there": {pod: meshed("web", nil), unread: true, prepare: nowhere,
			want: "refused", words: []string{"/nonexistent"}},
		"with a kernel of its own": {pod: containers(func(s *corev1.PodSpec) {
			s.RuntimeClassName = new("vm")
		}), prepare: func(_ *testing.T, _ *node, _ *netns.NS, s *nriserver.Pod) {
			s.RuntimeHandler = "kata-qemu"
		}, want: "refused", words: []string{"kata-qemu", "runtimeHandlers"}},
		"of a runtime class that runs ordinary containers": {pod: containers(
			func(s *corev1.PodSpec) { s.RuntimeClassName = new("usual") }),
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) {
				n.handlers = map[string]string{"usual": "runc"}
			}, want: "redirected"},
		"while another agent is in charge": {pod: meshed("web", nil), unread: true,
			prepare: func(_ *testing.T, n *node, _ *netns.NS, _ *nriserver.Pod) {
				n.away.Store(true)
			}, want: "passed"},
	} {
		// It reports whether the guard was too late.
		once := func(t *testing.T) bool {
			n, ns := newNode(t), netns.New(t)
			s := n.sandbox(row.pod, ns)
			if row.prepare != nil {
				row.prepare(t, n, ns, &s)
			}
			before := rules(t, ns)
			n.listen(patient)
			n.guard()
			n.awaitConnected()
			_, err := n.runtime.RunPodSandbox(s)
			if err != nil && !n.hang && strings.Contains(err.Error(), late) {
				return true
			}
			if (err != nil) != (row.want == "refused") {
				t.Errorf("error %v, want %s", err, row.want)
			}
			for _, word := range row.words {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("the refusal lacks %q: %v", word, err)
				}
			}
			n.wantCounted("start", row.want, 1)
			if row.unread && n.asked.Load() > 0 {
				t.Error("the whole pod was asked for")
			}
			after := rules(t, ns)
			_, missing := n.config.Records.Read(record.Attachment{Container: s.ID, Interface: "eth0"})
			if _, err := n.config.Records.Read(record.StandIn(s.UID)); err == nil {
				t.Error("the record of a repair is left beside the sandbox's own")
			}
			if row.want == "redirected" {
				if !strings.Contains(after, "15001") || missing != nil {
					t.Errorf("record: %v, rules:\n%s", missing, after)
				}
				return false
			}
			if after != before {
				t.Errorf("rules were written:\n%s", after)
			}
			left, _ := filepath.Glob(filepath.Join(string(n.config.Records), ".*"))
			if len(left) > 0 {
				t.Errorf("left %v", left)
			}
			return false
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			for range 20 { // what it has written by then is not what it would have found
				if !once(t) {
					return
				}
				t.Log("done again: the guard was too late")
			}
			t.Fatal("the guard was too late each time")
		})
	}
}

// Each version of the runtime's half hears a refusal, and its cause.
func TestEachVersionIsAnswered(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n, ns := connected(t, nriserver.Options{Version: version,
				RequestTimeout: patient.RequestTimeout}), netns.New(t)
			wrong := meshed("wrong",
				map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "x"})
			if err := n.run(n.sandbox(wrong, netns.New(t))); err == nil ||
				!strings.Contains(err.Error(), "excludeOutboundPorts") {
				t.Errorf("error %v", err)
			}
			pod := meshed("web", nil)
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
				RunAsUser: new(int64(1337))}
			s := n.sandbox(pod, ns)
			if err := n.run(s); err != nil {
				t.Fatal(err)
			}
			if got := rules(t, ns); !strings.Contains(got, table) {
				t.Errorf("rules:\n%s", got)
			}
			if _, err := n.runtime.CreateContainer(s, nriserver.Container{ID: "1", PodID: s.ID,
				Name: "app"}); err != nil {
				t.Error(err)
			}
			if r, err := n.config.Records.Read(record.Attachment{Container: s.ID,
				Interface: "eth0"}); err != nil || r.Pod.UID != s.UID || r.Netns != identify(t, ns) {
				t.Errorf("record %+v, %v", r, err)
			}
			n.wantCounted("start", "refused", 1)
			n.wantCounted("start", "redirected", 1)
			n.awaitEvent("wrong", "SidecarStartRefused", "Warning", "excludeOutboundPorts")
			n.awaitEvent("web", "SidecarBypassed", "Warning", "runs under the proxy's uid")
			n.awaitEvent("web", "SidecarRedirectedByGuard", "Normal", "before its first container")
		})
	}
}

// The nameservers are those of the sandbox's resolv.conf, unless plugins are not told any either.
func TestNameservers(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	const servers = "search shop.svc\nnameserver 10.96.0.10\nnameserver fd00::a # second\nnameserver x\n"
	for title, row := range map[string]struct {
		runtime string
		pid     int
		prepare func(t *testing.T, root string)
		want    []string
	}{
		"of the sandbox":           {pid: 7, want: []string{"10.96.0.10", "fd00::a"}},
		"a link stays in the root": {pid: 7, prepare: link, want: []string{"10.96.0.10", "fd00::a"}},
		"a FIFO":                   {pid: 7, prepare: fifo},
		"no process is known":      {},
		"another process":          {pid: 8},
		"CRI-O tells no plugin":    {runtime: "cri-o", pid: 7},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			n, ns := connected(t, nriserver.Options{RuntimeName: row.runtime,
				RequestTimeout: patient.RequestTimeout}), netns.New(t)
			for pid, path := range map[int]string{7: ns.Path(), 8: netns.New(t).Path()} {
				root := n.process(pid, path)
				if err := os.WriteFile(filepath.Join(root, "etc/resolv.conf"), []byte(servers),
					0o600); err != nil {
					t.Fatal(err)
				}
				if row.prepare != nil {
					row.prepare(t, root)
				}
			}
			pod := meshed("web", nil)
			pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"}}
			s := n.sandbox(pod, ns)
			s.PID = uint32(row.pid)
			if err := n.run(s); err != nil {
				t.Fatal(err)
			}
			r, err := n.config.Records.Read(record.Attachment{Container: s.ID, Interface: "eth0"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, server := range r.Policy.DNS.Servers {
				got = append(got, server.String())
			}
			if strings.Join(got, " ") != strings.Join(row.want, " ") {
				t.Errorf("nameservers %q, want %q", got, row.want)
			}
		})
	}
}

func link(t *testing.T, root string) {
	t.Helper()
	file := filepath.Join(root, "etc/resolv.conf")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "run"), 0o755),
		os.Rename(file, filepath.Join(root, "run/resolv.conf")),
		os.Symlink("/run/resolv.conf", file)); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, root string) {
	t.Helper()
	file := filepath.Join(root, "etc/resolv.conf")
	if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
}
