package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Runtime is a generation of containerd.
type Runtime string

// The generations differ in what the CNI may do: the older has no drop-in directories and no
// STATUS.
const (
	Containerd2 Runtime = "containerd2" // the newest, built from its module
	Containerd1 Runtime = "containerd1" // 1.6, Debian's package, with Debian's runc
)

// NRI says what a Containerd2 does with plugins that connect to it. Without, it asks them, as it
// does unless it is configured.
type NRI string

// What else it can be configured for.
const (
	// NRIValidates has it create no container whose pod's annotations require plugins that are not
	// connected.
	NRIValidates NRI = "validates"
	NRIOff       NRI = "off" // it has no socket for plugins
)

// NodeOptions say what a node is like.
type NodeOptions struct {
	Runtime Runtime
	NRI     NRI
	Taints  []corev1.Taint // from the moment the node registers
}

// A Node is a machine with a kubelet, a containerd and a kube-proxy. Its Name is its host name,
// too.
type Node struct {
	Name    string
	Runtime Runtime

	Kubelet, Containerd, Proxy *Process

	cluster *Cluster
	machine *machine
	index   int
}

// Node returns the i-th node.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// AddNode starts one more node and returns when it is ready.
func (c *Cluster) AddNode(t testing.TB, o NodeOptions) *Node {
	t.Helper()
	n := c.launchNode(t, o)
	n.join(t)
	c.Await(t, n.Name+" to be ready", n.Ready)
	return n
}

// ConfDir returns where the node's CNI configuration is, in the test's eyes. Like every such path
// it holds until the node is restarted.
func (n *Node) ConfDir() string { return n.File("/etc/cni/net.d") }

// BinDir returns where the node's CNI plugins are.
func (n *Node) BinDir() string { return n.File("/opt/cni/bin") }

// File returns the path under which the test finds a file of the node. Be aware that a symbolic
// link to an absolute path leads out of the node.
func (n *Node) File(path string) string { return n.machine.file(path) }

// Run runs a program of the node or of the machine, in the node. A program that fails is the end of
// the test.
func (n *Node) Run(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	out, err := n.Try(stdin, name, args...)
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
	return out
}

// Try is Run for programs that may fail; what they wrote to standard error is in the error.
func (n *Node) Try(stdin, name string, args ...string) (string, error) {
	return n.machine.run(strings.NewReader(stdin), name, args...)
}

// Kill ends the node as a power cut does: every process, whatever lies in /run, the network. The
// disk stays.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	for _, p := range n.processes() {
		p.forget()
	}
	n.machine.kill()
	for _, p := range n.processes() {
		<-p.settled
	}
	if err := removeCgroup(n.cgroup()); err != nil {
		t.Fatal(err)
	}
}

// Start starts a node that was killed, everything at once, and returns when the kubelet runs. What
// its pods are in the meantime, the API server may not know yet.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	n.boot(t)
	processes := n.processes()
	for _, p := range processes {
		p.launch(t)
	}
	for _, p := range processes {
		n.cluster.Await(t, p.Name+" to be ready", p.ready)
	}
}

// Reboot is Kill and Start.
func (n *Node) Reboot(t testing.TB) {
	t.Helper()
	n.Kill(t)
	n.Start(t)
}

func (n *Node) cgroup() string { return n.cluster.cgroup + "/" + n.Name }

// kits are the node's programs that the machine does not have.
func (n *Node) kits() []string {
	kits := n.cluster.kits
	if n.Runtime == Containerd1 {
		return []string{kits["kube"], kits["cni"]}
	}
	return []string{kits["kube"], kits["cni"], kits["containerd"], kits["runc"]}
}

func (c *Cluster) launchNode(t testing.TB, o NodeOptions) *Node {
	t.Helper()
	i := len(c.nodes)
	n := &Node{Name: fmt.Sprintf("node%d", i), Runtime: o.Runtime, cluster: c, index: i}
	if n.Runtime == "" {
		n.Runtime = Containerd2
	}
	n.machine = &machine{path: strings.Join(n.kits(), ":")}
	if err := os.MkdirAll(c.site.file(n.disk()), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := c.site.run(nil, "mount", "-t", "tmpfs", "-o", "mode=755,size=4g", n.Name,
		n.disk()); err != nil {
		t.Fatal(err)
	}
	c.nodes = append(c.nodes, n)
	n.declareProcesses()
	n.boot(t)
	n.install(t, o)
	n.Containerd.launch(t)
	return n
}

func (n *Node) disk() string { return "/run/cluster/disks/" + n.Name }

// DiskFile is File for what lies on the node's disk itself, see the package's comment: it holds
// over reboots, and while the node is killed.
func (n *Node) DiskFile(path string) string { return n.cluster.site.file(n.disk() + "/own" + path) }

func (n *Node) boot(t testing.TB) {
	t.Helper()
	err := makeCgroup(n.cgroup())
	if err == nil {
		err = n.machine.boot(n.cluster.site, nodeScript,
			append([]string{n.disk(), n.Name}, n.kits()...)...)
	}
	if err == nil {
		err = n.cluster.connect(n)
	}
	if err != nil {
		t.Fatalf("start %s: %v", n.Name, err)
	}
}

// processes are in the order in which they need each other.
func (n *Node) processes() []*Process { return []*Process{n.Containerd, n.Kubelet, n.Proxy} }

func (n *Node) declareProcesses() {
	c, on := n.cluster, " of "+n.Name
	n.Containerd = c.process(n.machine, "containerd"+on,
		listens(n.machine, "/run/containerd/containerd.sock"),
		"containerd", "--config=/etc/kubernetes/containerd.toml")
	n.Kubelet = c.process(n.machine, "kubelet"+on,
		answers(n.machine, "http://127.0.0.1:10248/healthz"),
		"kubelet", "--config=/etc/kubernetes/kubelet.yaml",
		"--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
		"--cert-dir=/var/lib/kubelet/pki", "--hostname-override="+n.Name, "-v=2",
		"--node-ip="+strings.Join(nodeAddresses(c.families, n.index), ","))
	n.Proxy = c.process(n.machine, "kube-proxy"+on,
		answers(n.machine, "http://127.0.0.1:10249/healthz"),
		"kube-proxy", "--config=/etc/kubernetes/kube-proxy.yaml")
}

// install writes what is on a node's disk before it starts for the first time.
func (n *Node) install(t testing.TB, o NodeOptions) {
	t.Helper()
	c, a, m := n.cluster, n.cluster.authority, n.machine
	facts := facts{
		Name: n.Name, Cgroup: n.cgroup(), Pause: pauseImage, Taints: o.Taints, NRI: o.NRI,
		DNS: c.families.of(ClusterDNS, ClusterDNSv6)[0], Subnets: podSubnets(c.families, n.index),
	}
	err := errors.Join(
		m.write("/etc/kubernetes/ca.crt", a.pem),
		m.write("/etc/kubernetes/kubelet.kubeconfig",
			a.kubeconfig(t, c.server(), a.client(t, "system:node:"+n.Name, "system:nodes"))),
		m.write("/etc/kubernetes/kube-proxy.kubeconfig",
			a.kubeconfig(t, c.server(), a.client(t, "system:kube-proxy"))),
		m.write("/etc/kubernetes/containerd.toml", facts.fill(string(n.Runtime)+".toml")),
		m.write("/etc/kubernetes/kubelet.yaml", facts.fill("kubelet.yaml")),
		m.write("/etc/kubernetes/kube-proxy.yaml", facts.fill("kube-proxy.yaml")),
		m.write("/etc/cni/net.d/10-cluster.conflist", facts.fill("10-cluster.conflist")),
		os.MkdirAll(m.file("/etc/kubernetes/manifests"), 0o755),
		os.CopyFS(n.BinDir(), os.DirFS(c.kits["cni"])),
	)
	if err != nil {
		t.Fatalf("install %s: %v", n.Name, err)
	}
}

// join makes a new node one of the cluster's. Pods that wait for it find their images.
func (n *Node) join(t testing.TB) {
	t.Helper()
	n.cluster.Await(t, n.Containerd.Name+" to be ready", n.Containerd.ready)
	n.Load(t, Image{Name: pauseImage,
		Files:      map[string]string{"/pause": n.cluster.kits["pause"] + "/pause"},
		Entrypoint: []string{"/pause"}})
	for _, i := range n.cluster.images {
		n.Load(t, i)
	}
	n.Kubelet.launch(t)
	n.Proxy.launch(t)
}

// Ready says why the node is not, as the API server knows it.
func (n *Node) Ready(ctx context.Context) error {
	node, err := n.cluster.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(node.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	switch {
	case i < 0:
		return fmt.Errorf("%s has no condition Ready", n.Name)
	case node.Status.Conditions[i].Status != corev1.ConditionTrue:
		return fmt.Errorf("%s is not ready: %s", n.Name, node.Status.Conditions[i].Message)
	}
	return nil
}

// Load gives the node an image: it is there before anybody asks for it, as on a node that has
// pulled it.
func (n *Node) Load(t testing.TB, i Image) {
	t.Helper()
	r, w := io.Pipe()
	defer func() { _ = r.Close() }() // ctr may leave early
	go func() { w.CloseWithError(i.archive(w)) }()
	if _, err := n.machine.run(r, "ctr", "--namespace=k8s.io", "images", "import",
		"-"); err != nil {
		t.Fatalf("load image %s into %s: %v", i.Name, n.Name, err)
	}
}

// Load gives an image to every node there is and will be.
func (c *Cluster) Load(t testing.TB, i Image) {
	t.Helper()
	c.images = append(c.images, i)
	for _, n := range c.nodes {
		n.Load(t, i)
	}
}
