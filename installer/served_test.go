package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// realPlugins builds bridge and host-local beside the plugin that the daemon has put there.
func (r *rig) realPlugins() {
	r.t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/containernetworking/plugins").Output()
	r.must(err)
	cmd := exec.Command("go", "build", "-C", strings.TrimSpace(string(dir)), "-o",
		r.path("bin")+"/", "./plugins/main/bridge", "./plugins/ipam/host-local")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("build plugins: %v\n%s", err, out)
	}
}

func (r *rig) network() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isDefaultGateway": true,
      "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.22.0.0/16"}]]}
    }
  ]
}
`, r.path("addresses"))
}

func meshed(name string) *corev1.Pod {
	proxy := int64(1337)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "5d1c",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
			{Name: "app"}, {Name: "istio-proxy",
				SecurityContext: &corev1.SecurityContext{RunAsUser: &proxy}},
		}},
	}
}

// What the daemon has made of a directory, libcni loads and runs: in each of the ways a pod comes
// out redirected, and its end leaves nothing.
func TestLibcniRunsTheChain(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"inline", "owned", "dropin"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.realPlugins()
			r.write("10-pods.conflist", r.network())
			object := r.api.Node("node-1")
			object.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.0"
			r.api.PutNode(object)
			pod := meshed("web-0")
			r.api.Put(pod)
			d := r.start("--way", way)
			d.says(200, "runs our entry")
			await.Until(t, "the agent answers",
				func() bool { _, err := os.Stat(r.path("run", "agent.sock")); return err == nil })
			r.untilFresh()

			files, err := libcni.ConfFiles(r.path("conf"), []string{".conflist"})
			r.must(err)
			slices.Sort(files)
			list, err := libcni.NetworkConfFromFile(files[0])
			r.must(err)
			host, ns := netns.New(t), netns.New(t)
			cni := libcni.NewCNIConfigWithCacheDir([]string{r.path("bin")}, r.path("cache"),
				&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: d.log}})
			at := &libcni.RuntimeConf{
				ContainerID: "c1", NetNS: ns.Path(), IfName: "eth0",
				Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"},
					{"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", "5d1c"}},
				CapabilityArgs: map[string]any{
					"io.kubernetes.cri.pod-annotations": pod.Annotations,
				},
			}
			host.Do(t, func() { _, err = cni.AddNetworkList(t.Context(), list, at) })
			if err != nil {
				t.Fatalf("ADD: %v", err)
			}
			records, err := record.Dir(r.path("run", "state")).List()
			if err != nil || len(records) != 1 {
				t.Fatalf("records %v, %v", records, err)
			}
			var problems []redirect.Problem
			ns.Do(t, func() {
				problems, err = nftables.Verify(t.Context(),
					redirect.Compile(records[0].Policy))
			})
			if err != nil || len(problems) > 0 {
				t.Errorf("rules: %v, %v", problems, err)
			}
			await.Until(t, "the outcome is counted", func() bool {
				return d.metric(`sidecar_cni_commands_total{command="ADD",outcome="redirected",reason="",source="file"}`) == "1"
			})
			host.Do(t, func() { err = cni.DelNetworkList(t.Context(), list, at) })
			records, _ = record.Dir(r.path("run", "state")).List()
			if err != nil || len(records) > 0 {
				t.Errorf("DEL: %v, records %v", err, records)
			}
		})
	}
}

// A pod that cannot be redirected is refused, and the pod itself tells why.
func TestARefusalIsAnEventOfThePod(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.write("10-pods.conflist",
		strings.Replace(bridge, "\n    {", "\n    {\"type\": \"x\"},\n    {", 1))
	pod := meshed("web-0")
	pod.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "all of them"
	r.api.Put(pod)
	d := r.start()
	d.says(200)
	await.Until(t, "the agent answers",
		func() bool { _, err := os.Stat(r.path("run", "agent.sock")); return err == nil })
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": "sidecar-cni",
		"agentSocket": r.path("run", "agent.sock"), "stateDir": r.path("run", "state"),
		"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": pod.Annotations},
	})
	r.must(err)
	cmd := exec.Command(r.path("bin", "sidecar-cni"))
	cmd.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_PATH=" + r.path("bin"),
		"CNI_NETNS=" + netns.New(t).Path(),
		"CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=5d1c",
	}
	cmd.Stdin = strings.NewReader(string(conf))
	if out, err := cmd.Output(); err == nil ||
		!strings.Contains(string(out), "excludeOutboundPorts") {
		t.Fatalf("%v, %s", err, out)
	}
	await.Until(t, "an Event tells of it", func() bool {
		return slices.ContainsFunc(r.api.Events(), func(e *corev1.Event) bool {
			return e.Reason == "SidecarRedirectFailed" && e.InvolvedObject.Name == "web-0" &&
				strings.Contains(e.Message, "all of them")
		})
	})
}
