package reconcile

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Settings are what an administrator decides about the plugin on a node.
type Settings struct {
	Dirs   Directories    // where things are on the node
	Chain  ChainSettings  // how the plugin gets into the chain
	Plugin PluginSettings // what is installed, and how it is configured

	Namespace     string // the agent's own, whose pods are left alone
	InstallID     string // names the installation; "" is the uid of the agent's ServiceAccount
	PodUID        string // of the agent's own pod; "" outside of one
	RuntimeSocket string // "" is the platform's

	// Withdrawn is when the DaemonSet was withdrawn, by the API server's clock: an
	// agent whose pod was created later takes the node in again. Zero: none does. It counts for
	// uninstalling alone.
	Withdrawn time.Time
}

// Directories are those of the node. Empty are the platform's.
type Directories struct {
	Platform string // a name of platforms.All, or auto: by the Node object
	Conf     string // of the network configuration that the runtime reads
	Bin      string // of the plugins that the runtime runs
	Multus   string // of Multus' configurations
	Run      string // of the socket, the records and the locks; never empty
	Cache    string // of libcni's results; never empty
}

// ChainSettings say how the plugin gets into the chain.
type ChainSettings struct {
	Way        string // one of package chain
	Attachment string // the NetworkAttachmentDefinition of the way standalone
}

// PluginSettings are about the plugin itself.
type PluginSettings struct {
	Binary    string   // what is copied to the node; "" is the one beside this program
	Conf      string   // further keys of its configuration, a JSON object
	Backend   string   // what programs the rules, or auto
	HostRoot  string   // where the host's root directory is mounted; "" is nowhere
	Excluded  []string // namespaces whose pods are left alone, beside the agent's own
	CAFile    string   // the certificates that the API server is known by
	APIServer string   // its URL, as the node reaches it
}

// Sources are what a pass asks of the world, beside the node's disk and its runtime. Each may be
// nil: then nobody is asked.
type Sources struct {
	Node    func(context.Context) (*corev1.Node, error) // the Node object
	Created func(context.Context) (time.Time, error)    // when the agent's own pod was created
	Account func() string                               // the uid of the agent's ServiceAccount
	// Token is the plugin's, for the API server; onNode is the file that it is copied to.
	Token func(ctx context.Context, onNode string) ([]byte, error)
	// Retract takes back what the agent has reported to the API server about a node that is out,
	// and returns what had to stay.
	Retract func(ctx context.Context) (left []string)
	// TokenFile is the file that Token reads, which is watched; "" if it reads none.
	TokenFile string
}

// besideThis is the plugin that came with this program.
func besideThis() string {
	self, err := os.Executable()
	if err != nil {
		return names.Plugin
	}
	return filepath.Join(filepath.Dir(self), names.Plugin)
}

// installation is the name of this installation; "" if it is not known.
func (r *Reconciler) installation() string {
	return cmp.Or(r.cfg.InstallID, r.account())
}

func (r *Reconciler) account() string {
	if r.world.Account == nil {
		return ""
	}
	return r.world.Account()
}

// Socket is where the agent answers the plugin.
func (d Directories) Socket() string { return filepath.Join(d.Run, names.AgentSocket) }

// Records is where the plugin keeps its records.
func (d Directories) Records() string { return filepath.Join(d.Run, names.Records) }

func (d Directories) run() node.RunDir { return node.RunDir{Path: d.Run} }
