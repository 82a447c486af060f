package node

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// Platform is where a kind of cluster keeps things on its nodes.
type Platform struct {
	Name string // a value of --platform

	// The usual paths on the node, all absolute. Flags go before them, and what the Node object
	// says before RuntimeSocket.
	ConfDir       string
	BinDir        string
	RuntimeSocket string
	// MultusConfDir is where Multus looks for the networks of NetworkAttachmentDefinitions. Empty
	// where each installation of Multus is configured with another place.
	MultusConfDir string
}

// The places that most platforms share, and the sockets of other runtimes.
const (
	etcConf      = names.ConfDir
	optBin       = "/opt/cni/bin"
	containerd   = "/run/containerd/containerd.sock"
	multus       = "/etc/cni/multus/net.d" // Multus' own default
	k3sConf      = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
	k3sSocket    = "/run/k3s/containerd/containerd.sock"
	crioSocket   = "/run/crio/crio.sock"
	dockerSocket = "/run/cri-dockerd.sock"

	k3sDockerSocket = "/run/k3s/cri-dockerd/cri-dockerd.sock"
)

// Platforms are those that are known, by name. What a node says about itself goes before them, see
// Detect.
var Platforms = []Platform{
	{"aks", etcConf, optBin, containerd, multus},
	{"bottlerocket", etcConf, optBin, containerd, multus},
	{"canonical-kubernetes", etcConf, optBin, containerd, multus},
	{"eks", etcConf, optBin, containerd, multus},
	{"gke", etcConf, "/home/kubernetes/bin", containerd, multus},
	{"k0s", etcConf, optBin, "/run/k0s/containerd.sock", multus},
	{"k3d", k3sConf, "/bin", k3sSocket, ""},
	{"k3s", k3sConf, "/var/lib/rancher/k3s/data/cni", k3sSocket, ""},
	{"kind", etcConf, optBin, containerd, multus},
	{"kubeadm", etcConf, optBin, containerd, multus},
	{"microk8s", "/var/snap/microk8s/current/args/cni-network",
		"/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/common/run/containerd.sock",
		multus},
	{"minikube", etcConf, optBin, containerd, multus},
	{"openshift", "/etc/kubernetes/cni/net.d", "/var/lib/cni/bin", crioSocket, multus},
	{"rke2", etcConf, optBin, k3sSocket, ""},
	{"talos", etcConf, optBin, containerd, multus},
}

// PlatformNamed returns a platform by its name.
func PlatformNamed(name string) (Platform, bool) {
	for _, p := range Platforms {
		if p.Name == name {
			return p, true
		}
	}
	return Platform{}, false
}

// criSocket is kubeadm's word, on the nodes that it made.
const criSocket = "kubeadm.alpha.kubernetes.io/cri-socket"

// Detect returns a node's platform by what the Node object says, and what that was. Without a sign
// of another one it is kubeadm. Where the runtime's socket may be, Sockets returns.
func Detect(node *corev1.Node) (p Platform, why string) {
	name, why := recognize(node)
	p, _ = PlatformNamed(name)
	info := node.Status.NodeInfo
	if p.Name == "k3s" && beforeFixedPath(info.KubeletVersion) {
		p.BinDir = "/var/lib/rancher/k3s/data/current/bin"
	}
	return p, why
}

// Sockets are where the runtime of a node may listen, the likeliest first. The node may be nil.
func (p Platform) Sockets(node *corev1.Node) []string {
	if node == nil {
		return []string{p.RuntimeSocket}
	}
	return slices.Compact([]string{p.socketOf(node), p.RuntimeSocket})
}

// socketOf goes by kubeadm's word, then by the runtime's name.
func (p Platform) socketOf(node *corev1.Node) string {
	path := strings.TrimPrefix(node.Annotations[criSocket], "unix://")
	runtime := RuntimeFromNode(node.Status.NodeInfo.ContainerRuntimeVersion).Name
	switch {
	case strings.HasPrefix(path, "/"):
		return WithoutLink(path)
	case runtime == "cri-o":
		return crioSocket
	case runtime == "docker" && p.RuntimeSocket == k3sSocket:
		return k3sDockerSocket
	case runtime == "docker":
		return dockerSocket
	}
	return p.RuntimeSocket
}

// WithoutLink is a path in /var/run where that leads to on every node: /run.
func WithoutLink(path string) string {
	if strings.HasPrefix(path, "/var/run/") {
		return strings.TrimPrefix(path, "/var")
	}
	return path
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
