package audit_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/test/hostproc"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

const (
	nftBackend  = redirect.NFTables
	iptNFT      = redirect.IptablesNFT
	iptLegacy   = redirect.IptablesLegacy
	excludePort = "traffic.sidecar.istio.io/excludeOutboundPorts"
)

var backends = []string{nftBackend, iptNFT, iptLegacy}

// node is where pods run: a /proc of the host, whose first process is in a network namespace of
// its own, and records.
type node struct {
	t       *testing.T
	host    *netns.NS
	proc    hostproc.Dir
	records record.Dir
	names   []string
	backend string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, host: netns.New(t), backend: nftBackend, names: []string{"web-0"},
		records: record.Dir(filepath.Join(t.TempDir(), "state"))}
	n.proc = hostproc.New(t, n.host)
	return n
}

func uidOf(name string) string {
	return fmt.Sprintf("0f6f3c1e-2f6a-4d0e-9a53-%012x", []byte(fmt.Sprintf("%.6s", name)))
}

// facts are those of a pod with a sidecar.
func facts(name string, annotations map[string]string) redirect.Pod {
	all := map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(all, annotations)
	return redirect.Pod{Namespace: "shop", Name: name, Annotations: all,
		Spec: &redirect.Spec{Containers: []redirect.Container{{Name: "app"},
			{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}}}}
}

// pod is what is known of a pod with a sidecar.
func (n *node) pod(name string, annotations map[string]string) audit.Pod {
	n.t.Helper()
	expected, ours := audit.Expect(facts(name, annotations), redirect.Defaults())
	if !ours {
		n.t.Fatal("the pod is not ours")
	}
	heads, err := n.records.Heads()
	if err != nil {
		n.t.Fatal(err)
	}
	return audit.Pod{UID: uidOf(name), Policy: expected.Policy, Mistake: expected.Mistake,
		Addrs: []netip.Addr{netip.MustParseAddr("10.244.0.2"),
			netip.MustParseAddr("fd00:244::2")},
		Records: audit.RecordsOf(n.records, heads, uidOf(name))}
}

// process puts a process into the host's /proc.
func (n *node) process(pid, parent int, netnsPath, cgroups string) {
	n.t.Helper()
	n.proc.Add(n.t, hostproc.Process{PID: pid, Parent: parent, Netns: netnsPath, Cgroups: cgroups})
}

// run runs a process of a pod in a namespace.
func (n *node) run(name string, ns *netns.NS) {
	n.t.Helper()
	n.process(100, 1, ns.Path(), hostproc.CgroupOf(uidOf(name)))
}

// judge finds a pod and judges it.
func (n *node) judge(pod audit.Pod) (audit.Judgement, record.Netns) {
	n.t.Helper()
	host, err := podns.FindHost(string(n.proc), "the test")
	if err != nil {
		n.t.Fatal(err)
	}
	uids := []string{pod.UID}
	for _, name := range n.names {
		uids = append(uids, uidOf(name))
	}
	at, err := audit.NewSearch(host, string(n.proc), uids).Find(pod)
	if err != nil {
		return audit.Judgement{Finding: audit.Unreachable, Why: err.Error()}, record.Netns{}
	}
	defer at.Close()
	auditor := audit.Auditor{Records: n.records, Ports: redirect.Defaults().Ports,
		Backend: n.backend}
	return auditor.Judge(n.t.Context(), at, pod), at.Netns
}

// want judges a pod, and returns where it was found.
func (n *node) want(pod audit.Pod, f audit.Finding, words ...string) record.Netns {
	n.t.Helper()
	j, at := n.judge(pod)
	n.wantJudgement(j, f, words...)
	return at
}

func (n *node) wantJudgement(j audit.Judgement, f audit.Finding, words ...string) {
	n.t.Helper()
	if j.Finding != f {
		n.t.Fatalf("finding %q, want %q: %s, problems %v", j.Finding, f, j.Why, j.Problems)
	}
	for _, word := range words {
		if !strings.Contains(j.Why, word) {
			n.t.Errorf("it lacks %q: %s", word, j.Why)
		}
	}
}

func identify(t *testing.T, ns *netns.NS) record.Netns {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cni-1") // not in /proc, as runtimes have them
	if err := os.Symlink(ns.Path(), path); err != nil {
		t.Fatal(err)
	}
	return record.Netns{Path: path, Device: st.Dev, Inode: st.Ino}
}

// policyOf is what a pod asks for.
func policyOf(t *testing.T, annotations map[string]string) redirect.Policy {
	t.Helper()
	d, err := redirect.Decide(facts("web-0", annotations), redirect.Defaults())
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

// add does to a pod what the plugin does.
func (n *node) add(name, backend string, ns *netns.NS) record.Record {
	n.t.Helper()
	p := policyOf(n.t, nil)
	apply(n.t, ns, backend, p)
	r := record.Record{
		Attachment: record.Attachment{Container: "0a1b" + name, Interface: "eth0"},
		Network:    "pods", Netns: identify(n.t, ns),
		Pod:     record.Pod{Namespace: "shop", Name: name, UID: uidOf(name)},
		Backend: backend, Revision: record.Revision(redirect.Compile(p)), Policy: p,
	}
	n.write(r)
	return r
}

func (n *node) write(r record.Record) {
	n.t.Helper()
	if err := n.records.Write(r); err != nil {
		n.t.Fatal(err)
	}
}

var counters = regexp.MustCompile(` packets \d+ bytes \d+|\[\d+:\d+\]`)

// rules are all that a namespace has, by the kernel's own tools.
func rules(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var b strings.Builder
	for _, program := range [][]string{{"nft", "list", "ruleset"}, {"iptables-legacy-save"},
		{"ip6tables-legacy-save"}, {"ip", "rule"}, {"ip", "-6", "rule"}} {
		for line := range strings.Lines(ns.Run(t, "", program[0], program[1:]...)) {
			if !strings.HasPrefix(line, "# ") {
				b.WriteString(line)
			}
		}
	}
	return counters.ReplaceAllString(b.String(), "")
}
