package main_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/criserver"
)

const ownPod = "7c1e4f0a-own"

// runtime is a containerd that loads drop-ins, tells of no chain, and runs one pod.
func runtime(pod string) *criserver.Runtime {
	return &criserver.Runtime{Name: "containerd", Version: "2.1.0",
		Pods: []*cri.PodSandbox{criserver.Sandbox(pod)}}
}

// configured is what containerd tells of its configuration.
func configured(cni string) map[string]string {
	return map[string]string{"config": `{"cni":{` + cni + `}}`}
}

// listen serves a runtime, and returns what ends it.
func (r *rig) listen(one *criserver.Runtime) (socket string, stop func()) {
	r.t.Helper()
	socket = r.path("runtime.sock")
	return socket, criserver.Serve(r.t, socket, one)
}

// declare has the Node object say which runtime its kubelet uses.
func (r *rig) declare(version string, taints ...corev1.Taint) {
	object := r.api.Node("node-1")
	object.Status.NodeInfo.ContainerRuntimeVersion = version
	object.Spec.Taints = taints
	r.api.PutNode(object)
}

func (r *rig) hasDropIn() bool {
	_, err := os.Stat(r.path("conf", "pods", "99-sidecar-cni.conf"))
	return err == nil
}

// An idle containerd, which would load drop-ins, is beside the CRI-O that runs the pods, which does
// not.
func TestARuntimeThatDoesNotRunTheAgentIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	r.declare("cri-o://1.30.4",
		corev1.Taint{Key: "sidecar-cni.io/not-ready", Effect: corev1.TaintEffectNoSchedule})
	socket, _ := r.listen(runtime("somebody-else"))
	d := r.start("--runtime-socket", socket, "--pod-uid", ownPod, "--untaint")
	d.says(503, "other_runtime", "containerd 2.1.0 answers at "+socket, "cri-o://1.30.4",
		"--runtime-socket (the chart's runtimeSocket)")
	if got := r.chain(); r.hasDropIn() || !slices.Equal(got, []string{"bridge", "sidecar-cni"}) {
		t.Errorf("chain %q, drop-in %v: want the way inline", got, r.hasDropIn())
	}
	if len(r.api.Node("node-1").Spec.Taints) == 0 {
		t.Error("the taint is gone")
	}
}

// One that runs the agent is believed, and stays the right one when it is silent.
func TestASilentRuntimeChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	socket, stop := r.listen(runtime(ownPod))
	flags := []string{"--runtime-socket", socket, "--pod-uid", ownPod}
	d := r.start(flags...)
	d.says(200, "ready:")
	if !r.hasDropIn() {
		t.Fatal("no drop-in")
	}
	stop()
	for _, agent := range []string{"the same agent", "a new one"} {
		if agent == "a new one" {
			d.stop()
			d = r.start(flags...)
		}
		d.says(200, "ready:")
		const passes = `sidecar_cni_passes_total{result="unchanged"}`
		before := d.metric(passes)
		r.must(d.cmd.Process.Signal(syscall.SIGHUP))
		await.Until(t, agent+" has made a pass", func() bool { return d.metric(passes) != before })
		d.says(200, "ready:")
		if got := r.chain(); !r.hasDropIn() ||
			!slices.Equal(got, []string{"bridge", "sidecar-cni"}) {
			t.Errorf("%s: chain %q, drop-in %v", agent, got, r.hasDropIn())
		}
	}
}

// TestALinkToARevision is microk8s: the runtime names the snap's revision, the settings a link to
// it, which leads elsewhere after a refresh of the snap. So does k3s before its plugins had a fixed
// path.
func TestALinkToARevision(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	revision := func(name string) string {
		r.must(os.MkdirAll(r.path(name, "conf"), 0o755))
		r.must(os.MkdirAll(r.path(name, "bin"), 0o755))
		r.must(os.WriteFile(r.path(name, "conf", "10-bridge.conflist"), []byte(bridge), 0o644))
		return r.path(name)
	}
	one := runtime(ownPod)
	names := func(root string) { // the runtime names the revision's directories
		one.SetInfo(configured(fmt.Sprintf(`"confDir":%q,"binDir":%q`, root+"/conf", root+"/bin")))
	}
	names(revision("1"))
	r.must(os.Symlink("1", r.path("current")))
	socket, _ := r.listen(one)
	d := r.start("--runtime-socket", socket, "--pod-uid", ownPod, "--way", "inline",
		"--conf-dir", r.path("current", "conf"), "--bin-dir", r.path("current", "bin"))
	d.says(200, "10-bridge.conflist runs our entry")

	second := revision("2")
	r.must(os.Symlink("2", r.path("next")))
	names(second)
	r.must(os.Rename(r.path("next"), r.path("current")))
	await.Until(t, "the new revision has the plugin", func() bool {
		data, err := os.ReadFile(r.path("2", "conf", "10-bridge.conflist"))
		_, none := os.Stat(r.path("2", "bin", "sidecar-cni"))
		return err == nil && none == nil && strings.Contains(string(data), "sidecar-cni")
	})
	d.says(200, "10-bridge.conflist runs our entry")
	if got := d.logged("evaluated node"); len(got) == 0 || got[0]["outcome"] != "effective" {
		t.Errorf("the link was not followed: %v", got)
	}
}

// Outside of a pod the Node object decides, by the runtime's name.
func TestOnceComparesNames(t *testing.T) {
	t.Parallel()
	for declared, want := range map[string]string{
		"containerd://2.1.0": "",
		"cri-o://1.30.4":     "the node's runtime is cri-o://1.30.4; set --runtime-socket",
		"docker://28.1.0":    "the node's runtime is docker://28.1.0; set --runtime-socket",
	} {
		r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
		r.declare(declared)
		socket, _ := r.listen(runtime(""))
		out, err := r.run("run", "--once", "--runtime-socket", socket)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", declared, err, out)
		}
		if r.hasDropIn() != (want == "") {
			t.Errorf("%s: drop-in %v", declared, r.hasDropIn())
		}
	}
}

// CRI-O passes over a file that it cannot load, which containerd stops at.
func TestAFileThatOnlyOneRuntimeStopsAt(t *testing.T) {
	t.Parallel()
	for declared, want := range map[string]string{"cri-o://1.32.1": "",
		"containerd://1.7.1": "05-half.conflist"} {
		r := newRig(t, map[string]string{"05-half.conflist": bridge[:30],
			"10-bridge.conflist": bridge})
		r.declare(declared)
		out, err := r.run("run", "--once")
		data, _ := os.ReadFile(r.path("conf", "10-bridge.conflist"))
		if entered := strings.Contains(string(data), "sidecar-cni"); (err == nil) != (want == "") ||
			entered != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v, entered %v\n%s", declared, err, entered, out)
		}
	}
}

// A copy of the network would be a second one.
func TestOwnedIsRefusedWhereTheRuntimeLoadsSeveralNetworks(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	one := runtime(ownPod)
	one.Info = configured(`"maxConfNum":0`)
	socket, _ := r.listen(one)
	d := r.start("--runtime-socket", socket, "--pod-uid", ownPod, "--way", "owned")
	d.says(503, "many_networks", "max_conf_num 1")
	if got := r.chain(); !slices.Equal(got, []string{"bridge"}) {
		t.Errorf("chain %q", got)
	}
}
