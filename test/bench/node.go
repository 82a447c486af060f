package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// node is where the plugin runs: a network namespace, an agent, an API server, and pods that both
// know.
type node struct {
	t        testing.TB
	host     *netns.NS
	programs programs
	api      *apiserver.Server
	pods     []*corev1.Pod
	state    string // the directory of the plugin's records
	run      string // the agent's run directory, with the pods' files
	away     string // a directory with the agent's socket and no file

	idle      sandbox // for calls that touch none
	sandboxes int
}

// programs are paths.
type programs struct{ plugin, installer, empty, stopwatch string }

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, host: netns.New(t), programs: build(t), state: tmpfs(t), away: tmpfs(t)}
	n.host.RaiseLoopback(t)
	n.api = apiserver.StartIn(t, n.host)
	for i := range manyPods {
		pod := meshed(t, i)
		pod.Spec.NodeName = "node-0"
		n.pods = append(n.pods, pod)
		n.api.Put(pod)
	}
	n.run, _ = startAgent(t, n.host, n.api, n.programs)
	if err := os.Symlink(socketIn(n.run), socketIn(n.away)); err != nil {
		t.Fatal(err)
	}
	n.idle = n.sandbox(n.pods[0])
	return n
}

// socketIn is the agent's socket for calls that look for the files beside it.
func socketIn(run string) string { return filepath.Join(run, names.AgentSocket) }

// build makes the programs as `make build` does, and copies them as an agent installs the plugin:
// the kernel pages in a file that was written from its start to its end faster than one that a
// linker has put together, by a sixth of the plugin's time.
func build(t testing.TB) programs {
	t.Helper()
	const module = "github.com/sidecar-cni/sidecar-cni/"
	linked, dir := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o",
		linked+"/",
		module+"plugin", module+"installer", module+"test/bench/empty",
		module+"test/bench/stopwatch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build programs: %v\n%s", err, out)
	}
	if err := os.CopyFS(dir, os.DirFS(linked)); err != nil {
		t.Fatal(err)
	}
	return programs{filepath.Join(dir, "plugin"), filepath.Join(dir, "installer"),
		filepath.Join(dir, "empty"), filepath.Join(dir, "stopwatch")}
}

// tmpfs makes a directory in memory, as that of the records is on a node.
func tmpfs(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "bench") //nolint:usetesting // a test's directory is on a disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// sandbox is what a runtime has made of a pod before it calls the plugin.
type sandbox struct {
	pod       *corev1.Pod
	netns     *netns.NS
	container string
}

// sandbox makes one for a pod. Its loopback is up: runtimes see to that before they call the
// plugins of a network.
func (n *node) sandbox(pod *corev1.Pod) sandbox {
	n.sandboxes++
	s := sandbox{pod: pod, netns: netns.New(n.t), container: fmt.Sprintf("%064x", n.sandboxes)}
	s.netns.RaiseLoopback(n.t)
	return s
}

// process prepares a case's process. The first words are a program that executes it, if there are
// any.
func (n *node) process(c testCase, s sandbox, words ...string) *exec.Cmd {
	words = append(words, c.program)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + filepath.Dir(c.program),
		"CNI_COMMAND=" + c.command, "CNI_NETNS=" + s.netns.Path(),
		"CNI_CONTAINERID=" + s.container, "CNI_IFNAME=eth0",
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s",
			s.pod.Namespace, s.pod.Name, s.container, s.pod.UID),
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(n.stdin(c)), &bytes.Buffer{},
		&bytes.Buffer{}
	return cmd
}

// stdin is the plugin's configuration, with what the runtime adds.
func (n *node) stdin(c testCase) []byte {
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": "sidecar-cni",
		"capabilities": map[string]bool{"io.kubernetes.cri.pod-annotations": true, "dns": true},
		"backend":      "nftables", "agentSocket": socketIn(n.away),
		"kubeconfig": n.api.Kubeconfig(), "stateDir": n.state,
		"excludeNamespaces": []string{"kube-system", "mesh-system"},
		"runtimeConfig": map[string]any{
			"io.kubernetes.cri.pod-annotations": c.passed,
			"dns": map[string]any{
				"Servers": []string{"10.96.0.10"}, "Options": []string{"ndots:5"},
				"Searches": []string{"shop.svc.cluster.local", "svc.cluster.local",
					"cluster.local"},
			},
		},
		"prevResult": json.RawMessage(previous),
	}
	maps.Copy(conf, c.conf)
	data, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	return data
}

// previous is what the plugin before ours answered.
const previous = `{"cniVersion":"1.0.0","interfaces":[{"name":"cni0","mac":"0a:58:0a:f4:00:01"},{"name":"veth5a3c","mac":"9e:1f:27:2b:4b:11"},` +
	`{"name":"eth0","mac":"0a:58:0a:f4:00:02","sandbox":"/var/run/netns/cni-1"}],"ips":[{"address":"10.244.0.2/24","gateway":"10.244.0.1","interface":2}],` +
	`"routes":[{"dst":"0.0.0.0/0","gw":"10.244.0.1"}],"dns":{}}`

// start starts processes in the node's namespace, one right after the other.
func (n *node) start(cmds ...*exec.Cmd) {
	n.t.Helper()
	n.host.Do(n.t, func() {
		for _, cmd := range cmds {
			if err := cmd.Start(); err != nil {
				n.t.Fatal(err)
			}
		}
	})
}
