package main_test

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const ownPod = "7c1e4f0a-own"

// runtime is a containerd that loads drop-ins, tells of no chain, and runs one pod.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	pod        string
	maxConfNum string
}

func (r runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.1.0"}, nil
}

func (r runtime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{}, Info: map[string]string{"config": `{"cni":{"maxConfNum":` + r.maxConfNum + `}}`}}, nil
}

func (r runtime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{Metadata: &cri.PodSandboxMetadata{Uid: r.pod}}}}, nil
}

// listen serves a runtime, and returns what ends it.
func (r *rig) listen(one runtime) (socket string, stop func()) {
	r.t.Helper()
	socket = r.path("runtime.sock")
	l, err := (&net.ListenConfig{}).Listen(r.t.Context(), "unix", socket)
	r.must(err)
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, one)
	go func() { _ = s.Serve(l) }()
	r.t.Cleanup(s.Stop)
	return socket, s.Stop
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

// An idle containerd, which would load drop-ins, is beside the CRI-O that runs the pods, which does not.
func TestARuntimeThatDoesNotRunTheAgentIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	r.declare("cri-o://1.30.4", corev1.Taint{Key: "sidecar-cni.io/not-ready", Effect: corev1.TaintEffectNoSchedule})
	socket, _ := r.listen(runtime{pod: "somebody-else", maxConfNum: "1"})
	d := r.start("--runtime-socket", socket, "--pod-uid", ownPod, "--untaint")
	d.says(503, "other_runtime", "containerd 2.1.0 answers at "+socket, "cri-o://1.30.4", "--runtime-socket (the chart's runtimeSocket)")
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
	socket, stop := r.listen(runtime{pod: ownPod, maxConfNum: "1"})
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
		until(t, agent+" has made a pass", func() bool { return d.metric(passes) != before })
		d.says(200, "ready:")
		if got := r.chain(); !r.hasDropIn() || !slices.Equal(got, []string{"bridge", "sidecar-cni"}) {
			t.Errorf("%s: chain %q, drop-in %v", agent, got, r.hasDropIn())
		}
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
		socket, _ := r.listen(runtime{maxConfNum: "1"})
		out, err := r.run("run", "--once", "--runtime-socket", socket)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", declared, err, out)
		}
		if r.hasDropIn() != (want == "") {
			t.Errorf("%s: drop-in %v", declared, r.hasDropIn())
		}
	}
}

// A copy of the network would be a second one.
func TestOwnedIsRefusedWhereTheRuntimeLoadsSeveralNetworks(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	socket, _ := r.listen(runtime{pod: ownPod, maxConfNum: "0"})
	d := r.start("--runtime-socket", socket, "--pod-uid", ownPod, "--way", "owned")
	d.says(503, "many_networks", "max_conf_num 1")
	if got := r.chain(); !slices.Equal(got, []string{"bridge"}) {
		t.Errorf("chain %q", got)
	}
}
