package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// Object is a JSON object.
type Object = map[string]any

// Node is a host with a network of pods: what libcni, the plugins and the agent have there.
type Node struct {
	Host *netns.NS // where the runtime executes the plugins, and where the bridge is
	Dir  string    // has the files of the plugins; others of the node may be put there

	t     testing.TB
	agent *agent.Server // where Entry sends the plugin
	spy   *spy
	cni   *libcni.CNIConfig // to be called within Host
}

// NewNode makes a node whose plugins Build has put into bin.
func NewNode(t testing.TB, bin string) *Node {
	t.Helper()
	n := &Node{t: t, Host: netns.New(t), agent: agent.Start(t), Dir: t.TempDir(),
		spy: &spy{last: map[string]Execution{}}}
	n.Host.RaiseLoopback(t)
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(n.Dir, "cache"), n.spy)
	return n
}

// state is where the plugin keeps its records.
func (n *Node) state() string { return filepath.Join(n.Dir, "state") }

// Entry is our plugin's entry in the network's configuration; what more has goes into it, or in
// place of what is there.
func (n *Node) Entry(more Object) Object {
	e := Object{
		"type": "sidecar-cni", "capabilities": Object{"io.kubernetes.cri.pod-annotations": true,
			"dns": true},
		"agentSocket": n.agent.Socket(), "kubeconfig": filepath.Join(n.Dir, "kubeconfig"),
		"stateDir": n.state(), "deadline": "1m",
	}
	maps.Copy(e, more)
	return e
}

// Bridge is the entry of the plugin that gives pods an interface and an address of 10.88.0.0/24.
func (n *Node) Bridge() Object {
	return Object{
		"type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
		"ipam": Object{
			"type": "host-local", "dataDir": filepath.Join(n.Dir, "addresses"),
			"ranges": [][]Object{{{"subnet": "10.88.0.0/24"}}},
		},
	}
}

// Network is the configuration of a network with these plugins, in a version of CNI.
func (n *Node) Network(version string, plugins ...Object) *libcni.NetworkConfigList {
	n.t.Helper()
	data, err := json.Marshal(Object{"cniVersion": version, "name": "pods", "plugins": plugins})
	if err != nil {
		n.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// spy executes plugins as libcni does, and keeps what went in and came out.
type spy struct {
	invoke.DefaultExec
	mu   sync.Mutex
	last map[string]Execution // by plugin
}

// Execution is one execution of a plugin.
type Execution struct {
	Took   time.Duration // the start of the program included
	Stderr string
	in     Object // the configuration
	out    Object // the result; nil if none was printed
}

func (s *spy) ExecPlugin(ctx context.Context, path string, stdin []byte,
	environ []string) ([]byte, error) {
	var stderr bytes.Buffer
	began := time.Now()
	out, err := (&invoke.RawExec{Stderr: &stderr}).ExecPlugin(ctx, path, stdin, environ)
	e := Execution{Took: time.Since(began), Stderr: stderr.String(), in: decode(stdin),
		out: decode(out)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[filepath.Base(path)] = e
	return out, err
}

// decode keeps numbers as they are written. What is no object is nil.
func decode(data []byte) Object {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o Object
	if d.Decode(&o) != nil {
		return nil
	}
	return o
}

// Last returns the last execution of a plugin by libcni. It ends the test if there was none.
func (n *Node) Last(plugin string) Execution {
	n.t.Helper()
	n.spy.mu.Lock()
	defer n.spy.mu.Unlock()
	e, ok := n.spy.last[plugin]
	if !ok {
		n.t.Fatalf("%s was not executed", plugin)
	}
	return e
}

// Meshed is a pod with a sidecar, as the API server has it.
func Meshed(name string, annotations map[string]string) *corev1.Pod {
	all := map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(all, annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
			UID: apitypes.UID("uid-of-" + name), Annotations: all},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}},
		}},
	}
}

// Unmeshed is a pod that no injector has been at.
func Unmeshed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: apitypes.UID("uid-of-" + name),
			// the kubelet's: no pod is without any
			Annotations: map[string]string{"kubernetes.io/config.seen": "yesterday"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
}

// Attachment is what a runtime passes for a pod.
func Attachment(pod *corev1.Pod, ns *netns.NS) *libcni.RuntimeConf {
	id := "id-of-" + pod.Name
	return &libcni.RuntimeConf{
		ContainerID: id, NetNS: ns.Path(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace},
			{"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", string(pod.UID)},
		},
		CapabilityArgs: Object{"io.kubernetes.cri.pod-annotations": pod.Annotations,
			"dns": Object{"Servers": []string{"10.96.0.10"}}},
	}
}

// Add attaches a pod to a network, from the host's namespace.
func (n *Node) Add(list *libcni.NetworkConfigList, at *libcni.RuntimeConf) (types.Result, error) {
	n.t.Helper()
	var result types.Result
	var err error
	n.Host.Do(n.t, func() { result, err = n.cni.AddNetworkList(n.t.Context(), list, at) })
	return result, err
}

// Rules are what ADD recorded to have programmed.
func (n *Node) Rules(at *libcni.RuntimeConf) redirect.Ruleset {
	n.t.Helper()
	r, err := record.Dir(n.state()).
		Read(record.Attachment{Container: at.ContainerID, Interface: at.IfName})
	if err != nil {
		n.t.Fatal(err)
	}
	return redirect.Compile(r.Policy)
}

// Verify says how a namespace differs from a ruleset.
func Verify(t testing.TB, ns *netns.NS, rules redirect.Ruleset) []redirect.Problem {
	t.Helper()
	var problems []redirect.Problem
	var err error
	ns.Do(t, func() { problems, err = nftables.Verify(t.Context(), rules) })
	if err != nil {
		t.Fatal(err)
	}
	return problems
}
