package repair_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

const (
	statusKey   = "sidecar.istio.io/status"
	nftBackend  = redirect.NFTables
	iptNFT      = redirect.IptablesNFT
	iptLegacy   = redirect.IptablesLegacy
	excludePort = "traffic.sidecar.istio.io/excludeOutboundPorts"
)

var counters = regexp.MustCompile(` packets \d+ bytes \d+|\[\d+:\d+\]`)

var backends = []string{nftBackend, iptNFT, iptLegacy}

// node is where pods run: an API server that knows them, and a /proc of the host, whose first
// process is in a network namespace of its own.
type node struct {
	t        *testing.T
	api      *apiserver.Server
	host     *netns.NS
	proc     hostproc.Dir
	registry *prometheus.Registry
	config   repair.Config
	names    []string
	listed   []*corev1.Pod // instead of those that the API server has by now
	repairer *repair.Repairer
	backend  string
	hold     bool // another mesh's plugin is in the chain
	docker   bool // the runtime starts a process before the network is there
}

func newNode(t *testing.T, mode repair.Mode) *node {
	t.Helper()
	n := &node{t: t, api: apiserver.Start(t), host: netns.New(t),
		registry: prometheus.NewRegistry(), backend: nftBackend}
	n.proc = hostproc.New(t, n.host)
	n.config = repair.Config{
		Mode: mode, Redirect: redirect.Defaults(), HostProc: string(n.proc), Label: repair.Label,
		Records: record.Dir(filepath.Join(t.TempDir(), "state")),
	}
	return n
}

// pass makes a pass, with a Repairer that is the same each time.
func (n *node) pass() repair.Summary {
	n.t.Helper()
	s, err := n.try(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) try(ctx context.Context) (repair.Summary, error) {
	n.t.Helper()
	if n.repairer == nil {
		n.registry = prometheus.NewRegistry()
		n.start()
	}
	return n.repairer.Pass(ctx)
}

func (n *node) start() {
	n.t.Helper()
	client, err := agent.NewClient(n.api.Config())
	if err != nil {
		n.t.Fatal(err)
	}
	log := zaptest.NewLogger(n.t, zaptest.WrapOptions(zap.AddCaller()))
	events := agent.NewEvents(client, "node-1", n.registry, log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		events.Run(ctx)
	}()
	n.t.Cleanup(func() { cancel(); <-done })
	n.repairer = repair.New(n.config, repair.Deps{
		Backend: func() string { return n.backend },
		Handler: func(class string) string {
			return map[string]string{"vm": "kata-qemu",
				"usual": "runc"}[class]
		},
		Hold:         func() bool { return n.hold },
		NetworkFirst: func() bool { return !n.docker },
		Pods:         n.pods, Client: client, Events: events, Registry: n.registry, Log: log,
	})
}

func (n *node) pods() []*corev1.Pod {
	if n.listed != nil {
		return n.listed
	}
	var all []*corev1.Pod
	for _, name := range n.names {
		if pod := n.api.Pod("shop", name); pod != nil {
			all = append(all, pod)
		}
	}
	return all
}

func uidOf(name string) types.UID {
	return types.UID(fmt.Sprintf("0f6f3c1e-2f6a-4d0e-9a53-%012x",
		[]byte(fmt.Sprintf("%.6s", name))))
}

// meshed is a running pod with a sidecar, of a ReplicaSet.
func meshed(name string, annotations map[string]string) *corev1.Pod {
	all := map[string]string{statusKey: "{}"}
	maps.Copy(all, annotations)
	controls := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: uidOf(name), Annotations: all,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web",
				Controller: &controls}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{
				{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}},
			}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.244.0.2",
			PodIPs: []corev1.PodIP{{IP: "10.244.0.2"}, {IP: "fd00:244::2"}},
		},
	}
}

// put makes pods known.
func (n *node) put(pods ...*corev1.Pod) {
	for _, pod := range pods {
		n.names = append(n.names, pod.Name)
		n.api.Put(pod)
	}
}

// process puts a process into the host's /proc.
func (n *node) process(pid, parent int, netnsPath, cgroups string) {
	n.t.Helper()
	n.proc.Add(n.t, hostproc.Process{PID: pid, Parent: parent, Netns: netnsPath, Cgroups: cgroups})
}

func cgroupOf(name string) string { return hostproc.CgroupOf(string(uidOf(name))) }

// run makes a pod known and runs a process of it in a namespace.
func (n *node) run(pod *corev1.Pod, ns *netns.NS) {
	n.t.Helper()
	n.put(pod)
	n.process(100+len(n.names), 1, ns.Path(), cgroupOf(pod.Name))
}

func identify(t *testing.T, ns *netns.NS) record.Netns {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	return record.Netns{Path: mounted(t, ns), Device: st.Dev, Inode: st.Ino}
}

// policyOf is what a pod asks for.
func policyOf(t *testing.T, annotations map[string]string) redirect.Policy {
	t.Helper()
	all := map[string]string{statusKey: "{}"}
	maps.Copy(all, annotations)
	d, err := redirect.Decide(redirect.Pod{Namespace: "shop", Name: "web-0", Annotations: all,
		Spec: &redirect.Spec{
			Containers: []redirect.Container{{Name: "app"},
				{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}},
		}}, redirect.Defaults())
	if err != nil || d.Skip != "" {
		t.Fatalf("decide: %q, %v", d.Skip, err)
	}
	return d.Policy
}

// apply programs a namespace as ADD does.
func apply(t *testing.T, ns *netns.NS, name string, p redirect.Policy) {
	t.Helper()
	found, err := backend.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() { _, _, err = found.Apply(t.Context(), redirect.Compile(p)) })
	if err != nil {
		t.Fatal(err)
	}
}

// recordOf is what ADD records of a pod.
func recordOf(t *testing.T, name, backend string, ns *netns.NS) record.Record {
	t.Helper()
	p := policyOf(t, nil)
	return record.Record{
		Attachment: record.Attachment{Container: "0a1b" + name, Interface: "eth0"},
		Network:    "pods",
		Netns:      identify(t, ns),
		Pod:        record.Pod{Namespace: "shop", Name: name, UID: string(uidOf(name))},
		Backend:    backend, Revision: record.Revision(redirect.Compile(p)), Policy: p,
	}
}

func (n *node) write(r record.Record) {
	n.t.Helper()
	if err := n.config.Records.Write(r); err != nil {
		n.t.Fatal(err)
	}
}

// add does to a pod what the plugin does.
func (n *node) add(name, backend string, ns *netns.NS) record.Record {
	n.t.Helper()
	r := recordOf(n.t, name, backend, ns)
	apply(n.t, ns, backend, r.Policy)
	n.write(r)
	return r
}

// rules are all that a namespace has, by the kernel's own tools.
func rules(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var b strings.Builder
	for _, program := range [][]string{
		{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"},
		{"ip", "rule"}, {"ip", "-6", "rule"}, {"ip", "-o", "address", "show", "dev", "lo"},
	} {
		for line := range strings.Lines(ns.Run(t, "", program[0], program[1:]...)) {
			if !strings.HasPrefix(line, "# Generated") && !strings.HasPrefix(line, "# Completed") {
				b.WriteString(line)
			}
		}
	}
	return counters.ReplaceAllString(b.String(), "")
}

// only returns the one result of a pass.
func only(t *testing.T, s repair.Summary) repair.Result {
	t.Helper()
	if len(s.Results) != 1 {
		t.Fatalf("%d results: %+v", len(s.Results), s.Results)
	}
	return s.Results[0]
}

func (n *node) want(s repair.Summary, f repair.Finding, o repair.Outcome,
	words ...string) repair.Result {
	n.t.Helper()
	x := only(n.t, s)
	if x.Finding != f || x.Outcome != o {
		n.t.Fatalf("finding %q, outcome %q, want %q and %q: %s, problems %v, error %v", x.Finding,
			x.Outcome, f, o, x.Why, x.Problems, x.Err)
	}
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(x.Why, x.Err), word) {
			n.t.Errorf("it lacks %q: %s, %v", word, x.Why, x.Err)
		}
	}
	return x
}

// awaitEvent returns the Event of a reason, once it is written.
func (n *node) awaitEvent(reason string) *corev1.Event {
	n.t.Helper()
	var all []*corev1.Event
	i := -1
	if !await.Within(await.Limit, func() bool {
		all = n.api.Events()
		i = slices.IndexFunc(all, func(e *corev1.Event) bool { return e.Reason == reason })
		return i >= 0
	}) {
		n.t.Fatalf("no event %s: %v", reason, all)
	}
	return all[i]
}
