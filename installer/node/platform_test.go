package node_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

func TestDetect(t *testing.T) {
	t.Parallel()
	type clues struct{ kubelet, image, runtime, provider, label, socket string }
	type place struct{ Name, Why, ConfDir, BinDir, Socket string }
	const (
		conf   = "/etc/cni/net.d"
		bin    = "/opt/cni/bin"
		socket = "/run/containerd/containerd.sock"
		k3s    = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
	)
	rows := map[string]struct {
		clues clues
		want  place
	}{
		"nothing": {clues{},
			place{"kubeadm", "nothing shows another platform", conf, bin, socket}},
		"kubeadm, CRI-O": {clues{runtime: "cri-o://1.34.0"},
			place{"kubeadm", "nothing shows another platform", conf, bin,
				"/run/crio/crio.sock"}},
		"kubeadm, its own word": {clues{runtime: "cri-o://1.34.0",
			socket: "unix:///var/run/other.sock"},
			place{"kubeadm", "nothing shows another platform", conf, bin, "/run/other.sock"}},
		"kubeadm, not a path": {clues{socket: "npipe://x"},
			place{"kubeadm", "nothing shows another platform", conf, bin, socket}},
		"gke": {clues{kubelet: "v1.33.2-gke.1240000"},
			place{"gke", "kubelet v1.33.2-gke.1240000", conf, "/home/kubernetes/bin", socket}},
		"eks": {clues{kubelet: "v1.33.1-eks-b9364f6"},
			place{"eks", "kubelet v1.33.1-eks-b9364f6", conf, bin, socket}},
		"eks, Bottlerocket": {clues{kubelet: "v1.33.1", image: "Bottlerocket OS 1.40",
			label: "eks.amazonaws.com/nodegroup"},
			place{"bottlerocket", "operating system Bottlerocket OS 1.40", conf, bin, socket}},
		"eks, a hybrid node": {clues{kubelet: "v1.33.1", label: "eks.amazonaws.com/compute-type"},
			place{"eks", "label eks.amazonaws.com/compute-type", conf, bin, socket}},
		"k0s": {clues{kubelet: "v1.31.2+k0s"},
			place{"k0s", "kubelet v1.31.2+k0s", conf, bin, "/run/k0s/containerd.sock"}},
		"Canonical Kubernetes": {clues{kubelet: "v1.33.1", label: "k8sd.io/role"},
			place{"canonical-kubernetes", "label k8sd.io/role", conf, bin, socket}},
		"aks": {clues{kubelet: "v1.33.2", label: "kubernetes.azure.com/cluster"},
			place{"aks", "label kubernetes.azure.com/cluster", conf, bin, socket}},
		"openshift": {clues{kubelet: "v1.32.5", runtime: "cri-o://1.32.5",
			label: "node.openshift.io/os_id"},
			place{"openshift", "label node.openshift.io/os_id", "/etc/kubernetes/cni/net.d",
				"/var/lib/cni/bin", "/run/crio/crio.sock"}},
		"k3s": {clues{kubelet: "v1.33.3+k3s1", image: "Debian GNU/Linux 12"},
			place{"k3s", "kubelet v1.33.3+k3s1", k3s, "/var/lib/rancher/k3s/data/cni",
				"/run/k3s/containerd/containerd.sock"}},
		"k3s at a cloud": {clues{kubelet: "v1.33.3+k3s1", label: "kubernetes.azure.com/cluster"},
			place{"k3s", "kubelet v1.33.3+k3s1", k3s, "/var/lib/rancher/k3s/data/cni",
				"/run/k3s/containerd/containerd.sock"}},
		"k3s before": {clues{kubelet: "v1.30.5+k3s1"},
			place{"k3s", "kubelet v1.30.5+k3s1", k3s, "/var/lib/rancher/k3s/data/current/bin",
				"/run/k3s/containerd/containerd.sock"}},
		"k3s after": {clues{kubelet: "v1.30.6+k3s1"},
			place{"k3s", "kubelet v1.30.6+k3s1", k3s, "/var/lib/rancher/k3s/data/cni",
				"/run/k3s/containerd/containerd.sock"}},
		"k3s, Docker": {clues{kubelet: "v1.33.3+k3s1", runtime: "docker://28.0.0"},
			place{"k3s", "kubelet v1.33.3+k3s1", k3s, "/var/lib/rancher/k3s/data/cni",
				"/run/k3s/cri-dockerd/cri-dockerd.sock"}},
		"k3d": {clues{kubelet: "v1.31.5+k3s1", image: "K3s v1.31.5+k3s1"},
			place{"k3d", "kubelet v1.31.5+k3s1, operating system K3s v1.31.5+k3s1", k3s, "/bin",
				"/run/k3s/containerd/containerd.sock"}},
		"rke2": {clues{kubelet: "v1.33.3+rke2r1"},
			place{"rke2", "kubelet v1.33.3+rke2r1", conf, bin,
				"/run/k3s/containerd/containerd.sock"}},
		"kind": {clues{provider: "kind://docker/kind/kind-control-plane",
			socket: "unix:///run/containerd/containerd.sock"},
			place{"kind", "provider id kind://docker/kind/kind-control-plane", conf, bin, socket}},
		"microk8s": {clues{label: "microk8s.io/cluster"},
			place{"microk8s", "label microk8s.io/cluster",
				"/var/snap/microk8s/current/args/cni-network",
				"/var/snap/microk8s/current/opt/cni/bin",
				"/var/snap/microk8s/common/run/containerd.sock"}},
		"minikube": {clues{label: "minikube.k8s.io/name", runtime: "docker://28.0.4",
			socket: "unix:///var/run/cri-dockerd.sock"},
			place{"minikube", "label minikube.k8s.io/name", conf, bin, "/run/cri-dockerd.sock"}},
		"minikube, no word": {clues{label: "minikube.k8s.io/name", runtime: "docker://28.0.4"},
			place{"minikube", "label minikube.k8s.io/name", conf, bin, "/run/cri-dockerd.sock"}},
		"talos": {clues{image: "Talos (v1.10.5)"},
			place{"talos", "operating system Talos (v1.10.5)", conf, bin, socket}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := row.clues
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{c.label: "x"},
				Annotations: map[string]string{}}}
			if c.socket != "" {
				n.Annotations["kubeadm.alpha.kubernetes.io/cri-socket"] = c.socket
			}
			n.Spec.ProviderID = c.provider
			n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: c.kubelet, OSImage: c.image,
				ContainerRuntimeVersion: c.runtime}
			p, why := node.Detect(n)
			if diff := cmp.Diff(row.want,
				place{p.Name, why, p.ConfDir, p.BinDir, node.Sockets(p, n)[0]}); diff != "" {
				t.Errorf("platform (-want +got):\n%s", diff)
			}
		})
	}
	if p, _ := node.Detect(&corev1.Node{}); p.Name != "kubeadm" {
		t.Errorf("an empty node is %q", p.Name)
	}
}

// TestSockets looks for the runtime where the node says, and where the platform has it.
func TestSockets(t *testing.T) {
	t.Parallel()
	crio := &corev1.Node{}
	crio.Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.0"
	containerd := &corev1.Node{}
	containerd.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.0"
	for name, row := range map[string]struct {
		node *corev1.Node
		want []string
	}{
		"nobody tells":       {nil, []string{"/run/containerd/containerd.sock"}},
		"the platform's own": {containerd, []string{"/run/containerd/containerd.sock"}},
		"another runtime": {crio,
			[]string{"/run/crio/crio.sock", "/run/containerd/containerd.sock"}},
	} {
		p, _ := platforms.Named("eks")
		if got := node.Sockets(p, row.node); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
