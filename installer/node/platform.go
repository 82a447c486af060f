package node

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

// criSocket is kubeadm's word, on the nodes that it made.
const criSocket = "kubeadm.alpha.kubernetes.io/cri-socket"

// Detect returns a node's platform by what the Node object says, and what that was. Without a sign
// of another one it is kubeadm. Where the runtime's socket may be, Sockets returns.
func Detect(node *corev1.Node) (p platforms.Platform, why string) {
	name, why := recognize(node)
	p, _ = platforms.Named(name)
	info := node.Status.NodeInfo
	if p.Name == "k3s" && beforeFixedPath(info.KubeletVersion) {
		p.BinDir = "/var/lib/rancher/k3s/data/current/bin"
	}
	return p, why
}

// Sockets are where the runtime of a node of a platform may listen, the likeliest first. The node
// may be nil.
func Sockets(p platforms.Platform, node *corev1.Node) []string {
	if node == nil {
		return []string{p.RuntimeSocket}
	}
	return slices.Compact([]string{socketOf(p, node), p.RuntimeSocket})
}

// socketOf goes by kubeadm's word, then by the runtime's name.
func socketOf(p platforms.Platform, node *corev1.Node) string {
	path := strings.TrimPrefix(node.Annotations[criSocket], "unix://")
	runtime := cri.FromNode(node.Status.NodeInfo.ContainerRuntimeVersion).Name
	switch {
	case strings.HasPrefix(path, "/"):
		return platforms.WithoutLink(path)
	case runtime == "cri-o":
		return platforms.CRIOSocket
	case runtime == "docker" && p.RuntimeSocket == platforms.K3sSocket:
		return platforms.K3sDockerSocket
	case runtime == "docker":
		return platforms.DockerSocket
	}
	return p.RuntimeSocket
}

// recognize begins with what only one platform has: a node of k3s may well run at a cloud.
func recognize(node *corev1.Node) (name, why string) {
	info := node.Status.NodeInfo
	label := func(key string) bool {
		_, ok := node.Labels[key]
		return ok
	}
	kubelet := "kubelet " + info.KubeletVersion
	image := "operating system " + info.OSImage
	switch v := info.KubeletVersion; {
	case strings.Contains(v, "+k3s") && strings.HasPrefix(info.OSImage, "K3s"):
		// This is k3s' own image, run in a container.
		return "k3d", kubelet + ", " + image
	case strings.Contains(v, "+k3s"):
		return "k3s", kubelet
	case strings.Contains(v, "+rke2"):
		return "rke2", kubelet
	case strings.Contains(v, "+k0s"):
		return "k0s", kubelet
	case strings.HasPrefix(info.OSImage, "Talos"):
		return "talos", image
	case strings.HasPrefix(info.OSImage, "Bottlerocket"):
		return "bottlerocket", image
	case strings.HasPrefix(node.Spec.ProviderID, "kind://"):
		return "kind", "provider id " + node.Spec.ProviderID
	case strings.Contains(v, "-gke."):
		return "gke", kubelet
	case strings.Contains(v, "-eks-"):
		return "eks", kubelet
	}
	for _, row := range [][2]string{
		{"minikube.k8s.io/name", "minikube"}, {"microk8s.io/cluster", "microk8s"},
		{"node.openshift.io/os_id", "openshift"},
		{"k8sd.io/role", "canonical-kubernetes"},
		{"kubernetes.azure.com/cluster", "aks"}, {"cloud.google.com/gke-nodepool", "gke"},
		{"eks.amazonaws.com/nodegroup", "eks"}, {"eks.amazonaws.com/compute-type", "eks"},
	} {
		if label(row[0]) {
			return row[1], "label " + row[0]
		}
	}
	return "kubeadm", "nothing shows another platform"
}

// beforeFixedPath reports whether k3s still keeps plugins in a directory that changes with its
// version. It stopped with the releases of October 2024: 1.28.15, 1.29.10, 1.30.6, 1.31.2.
func beforeFixedPath(kubelet string) bool {
	version, _, _ := strings.Cut(strings.TrimPrefix(kubelet, "v"), "+")
	minor, patch, _ := strings.Cut(strings.TrimPrefix(version, "1."), ".")
	first := map[string]int{"28": 15, "29": 10, "30": 6, "31": 2}[minor]
	n, err := strconv.Atoi(patch)
	return err == nil && n < first
}
