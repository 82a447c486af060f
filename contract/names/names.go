// Package names has the names by which the programs, and what they leave on a node, find each
// other.
//
// Be aware: none can be changed. Nodes have files of these names from earlier versions.
package names

// Plugin is the plugin's type in a chain, and the name of its binary.
const Plugin = "sidecar-cni"

// CredentialsDir is the directory, within that of the CNI configuration, of what the plugin asks
// the API server with. It has to be there after a reboot, before the agent is.
const CredentialsDir = Plugin + ".d"

// The files in CredentialsDir.
const (
	Kubeconfig = "kubeconfig"
	Token      = "token"
	CA         = "ca.crt" // what the API server is known by
)

// The directories that are used unless others are configured.
const (
	ConfDir = "/etc/cni/net.d"   // of the container runtime's CNI configuration
	RunDir  = "/run/sidecar-cni" // on a tmpfs, of what does not outlive a boot
)

// What is in RunDir, as far as more than its owner knows it.
const (
	AgentSocket = "agent.sock"  // the agent's, see package protocol
	Records     = "state"       // a record.Dir
	Uninstalled = "uninstalled" // there while no agent shall write to the node
)

// By these the plugin lets istio-validation pass in a pod to which istio-init was given back behind
// it, and in which nothing is redirected before istio-init runs. Whoever reads the tag needs no
// right, and to write it takes one that no pod has under Pod Security "restricted".
const (
	// LoopbackTag is a number of the interface lo in a network namespace, which the kernel keeps
	// for whoever wants one (ip-sysctl: "Allows you to write a number, which can be used as
	// required").
	LoopbackTag = "/proc/sys/net/ipv4/conf/lo/tag"
	// InitRestored is the number.
	InitRestored = "13371506"
)

// CNIVersions are the versions of CNI that the plugin speaks. Before 0.3.0 a chain has no result
// that could be passed on.
var CNIVersions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
