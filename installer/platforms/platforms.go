// Package platforms has where the kinds of clusters keep on their nodes what the plugin's chain
// consists of.
//
//	p, known := platforms.Named("k3s")
package platforms

import (
	"strings"

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

// The places that most platforms share.
const (
	etcConf    = names.ConfDir
	optBin     = "/opt/cni/bin"
	containerd = "/run/containerd/containerd.sock"
	multus     = "/etc/cni/multus/net.d" // Multus' own default
	k3sConf    = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
)

// The sockets of runtimes that a platform may have in place of its own.
const (
	CRIOSocket      = "/run/crio/crio.sock"
	DockerSocket    = "/run/cri-dockerd.sock"
	K3sSocket       = "/run/k3s/containerd/containerd.sock" // containerd's, of k3s and rke2
	K3sDockerSocket = "/run/k3s/cri-dockerd/cri-dockerd.sock"
)

// All are those that are known, by name. What a node says about itself goes before them.
var All = []Platform{
	{"aks", etcConf, optBin, containerd, multus},
	{"bottlerocket", etcConf, optBin, containerd, multus},
	{"canonical-kubernetes", etcConf, optBin, containerd, multus},
	{"eks", etcConf, optBin, containerd, multus},
	{"gke", etcConf, "/home/kubernetes/bin", containerd, multus},
	{"k0s", etcConf, optBin, "/run/k0s/containerd.sock", multus},
	{"k3d", k3sConf, "/bin", K3sSocket, ""},
	{"k3s", k3sConf, "/var/lib/rancher/k3s/data/cni", K3sSocket, ""},
	{"kind", etcConf, optBin, containerd, multus},
	{"kubeadm", etcConf, optBin, containerd, multus},
	{"microk8s", "/var/snap/microk8s/current/args/cni-network",
		"/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/common/run/containerd.sock",
		multus},
	{"minikube", etcConf, optBin, containerd, multus},
	{"openshift", "/etc/kubernetes/cni/net.d", "/var/lib/cni/bin", CRIOSocket, multus},
	{"rke2", etcConf, optBin, K3sSocket, ""},
	{"talos", etcConf, optBin, containerd, multus},
}

// Named returns a platform by its name.
func Named(name string) (Platform, bool) {
	for _, p := range All {
		if p.Name == name {
			return p, true
		}
	}
	return Platform{}, false
}

// WithoutLink is a path in /var/run where that leads to on every node: /run.
func WithoutLink(path string) string {
	if strings.HasPrefix(path, "/var/run/") {
		return strings.TrimPrefix(path, "/var")
	}
	return path
}
