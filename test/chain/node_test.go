package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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

var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

type object = map[string]any

// node is a host with a network of pods: what libcni, the plugins and the agent have there.
type node struct {
	t     testing.TB
	host  *netns.NS
	agent *agent.Server
	dir   string
	spy   *spy
	cni   *libcni.CNIConfig
}

func newNode(t testing.TB) *node {
	t.Helper()
	bin := programs(t)
	n := &node{t: t, host: netns.New(t), agent: agent.Start(t), dir: t.TempDir(), spy: &spy{}}
	n.host.Run(t, "", "ip", "link", "set", "lo", "up")
	n.spy.RawExec = &invoke.RawExec{Stderr: &n.spy.stderr}
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(n.dir, "cache"), n.spy)
	return n
}

// state is where the plugin keeps its records.
func (n *node) state() string { return filepath.Join(n.dir, "state") }

// entry is the plugin's entry in the network's configuration.
func (n *node) entry(more object) object {
	e := object{
		"type": "sidecar-cni", "capabilities": object{"io.kubernetes.cri.pod-annotations": true, "dns": true},
		"agentSocket": n.agent.Socket(), "kubeconfig": filepath.Join(n.dir, "kubeconfig"), "stateDir": n.state(), "deadline": "1s",
	}
	maps.Copy(e, more)
	return e
}

func (n *node) bridge() object {
	return object{
		"type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
		"ipam": object{
			"type": "host-local", "dataDir": filepath.Join(n.dir, "addresses"),
			"ranges": [][]object{{{"subnet": "10.22.0.0/16"}}},
		},
	}
}

func (n *node) network(version string, plugins ...object) *libcni.NetworkConfigList {
	n.t.Helper()
	data, err := json.Marshal(object{"cniVersion": version, "name": "pods", "plugins": plugins})
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
	mu     sync.Mutex
	stderr bytes.Buffer
	calls  []execution
}

type execution struct {
	plugin, command string
	in, out         object
}

func (s *spy) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	raw := &invoke.RawExec{Stderr: &bytes.Buffer{}}
	out, err := raw.ExecPlugin(ctx, path, stdin, environ)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stderr.Write(raw.Stderr.(*bytes.Buffer).Bytes())
	e := execution{plugin: filepath.Base(path), in: decode(stdin), out: decode(out)}
	for _, v := range environ {
		if command, ok := strings.CutPrefix(v, "CNI_COMMAND="); ok {
			e.command = command
		}
	}
	s.calls = append(s.calls, e)
	return out, err
}

// decode keeps numbers as they are written. What is no object is nil.
func decode(data []byte) object {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
	if d.Decode(&o) != nil {
		return nil
	}
	return o
}

// last is the last execution of a plugin.
func (s *spy) last(t testing.TB, plugin string) execution {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range slices.Backward(s.calls) {
		if call.plugin == plugin {
			return call
		}
	}
	t.Fatalf("%s was not executed", plugin)
	return execution{}
}

// meshed is a pod with a sidecar, as the API server has it.
func meshed(name string, annotations map[string]string) *corev1.Pod {
	all := map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(all, annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: apitypes.UID("uid-of-" + name), Annotations: all},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}},
		}},
	}
}

// attachment is what a runtime passes for a pod.
func attachment(pod *corev1.Pod, ns *netns.NS) *libcni.RuntimeConf {
	id := "id-of-" + pod.Name
	return &libcni.RuntimeConf{
		ContainerID: id, NetNS: ns.Path(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", id}, {"K8S_POD_UID", string(pod.UID)},
		},
		CapabilityArgs: object{"io.kubernetes.cri.pod-annotations": pod.Annotations, "dns": object{"Servers": []string{"10.96.0.10"}}},
	}
}

// add, check and del do what libcni does, from the host's namespace.
func (n *node) add(list *libcni.NetworkConfigList, at *libcni.RuntimeConf) (types.Result, error) {
	n.t.Helper()
	var result types.Result
	var err error
	n.host.Do(n.t, func() { result, err = n.cni.AddNetworkList(n.t.Context(), list, at) })
	return result, err
}

func (n *node) check(list *libcni.NetworkConfigList, at *libcni.RuntimeConf) error {
	n.t.Helper()
	var err error
	n.host.Do(n.t, func() { err = n.cni.CheckNetworkList(n.t.Context(), list, at) })
	return err
}

func (n *node) del(list *libcni.NetworkConfigList, at *libcni.RuntimeConf) error {
	n.t.Helper()
	var err error
	n.host.Do(n.t, func() { err = n.cni.DelNetworkList(context.WithoutCancel(n.t.Context()), list, at) })
	return err
}

func (n *node) records() []string {
	n.t.Helper()
	entries, err := os.ReadDir(n.state())
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// rules are what ADD recorded to have programmed.
func (n *node) rules(at *libcni.RuntimeConf) redirect.Ruleset {
	n.t.Helper()
	r, err := record.Dir(n.state()).Read(record.Attachment{Container: at.ContainerID, Interface: at.IfName})
	if err != nil {
		n.t.Fatal(err)
	}
	return redirect.Compile(r.Policy)
}

// verify says how a namespace differs from a ruleset.
func verify(t testing.TB, ns *netns.NS, rules redirect.Ruleset) []redirect.Problem {
	t.Helper()
	var problems []redirect.Problem
	var err error
	ns.Do(t, func() { problems, err = nftables.Verify(t.Context(), rules) })
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func (n *node) wantRedirected(ns *netns.NS, at *libcni.RuntimeConf) {
	n.t.Helper()
	for _, p := range verify(n.t, ns, n.rules(at)) {
		n.t.Errorf("%s: %s", at.ContainerID, p)
	}
}

func podName(i int) string { return fmt.Sprintf("web-%d", i) }
