package main

import (
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/daemon/api"
	"github.com/sidecar-cni/sidecar-cni/daemon/flags"
	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/installer/access"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/installer/withdraw"
)

// settings are what an administrator, or the chart for him, decides.
type settings struct {
	node     reconcile.Settings
	api      api.Server
	token    access.Plugin
	agent    agentSettings
	pods     podSettings
	guard    guardSettings
	report   reportSettings
	once     bool // end after one pass
	dryRun   bool
	stay     bool // after uninstalling
	withdraw withdraw.Settings
}

// agentSettings are about the daemon itself.
type agentSettings struct {
	node     string // its name
	pod      string // the agent's own; "" outside of one
	listen   string
	logLevel string
}

// podSettings say what is done about pods that run without redirection.
type podSettings struct {
	mode  string // of package repair
	every time.Duration
	label bool
}

// guardSettings say how sandboxes are guarded.
type guardSettings struct {
	mode   string // of package guard
	socket string // of NRI
}

// reportSettings say what is written to the Node object.
type reportSettings struct {
	untaint   bool
	condition bool
}

// platformWords are the values of --platform.
func platformWords() []string {
	words := []string{"auto"}
	for _, p := range platforms.All {
		words = append(words, p.Name)
	}
	return words
}

// common are the settings of run and uninstall.
func (s *settings) common() []flags.Group {
	return slices.Concat(s.nodeFlags(), s.pluginFlags(), s.agentFlags())
}

func (s *settings) nodeFlags() []flags.Group {
	dirs := &s.node.Dirs
	return []flags.Group{
		flags.In("The node's directories",
			flags.New("platform", "auto", &dirs.Platform,
				"Kind of cluster, which decides about the defaults of the directories and the",
				"runtime's socket. auto asks the API server what the node is.").
				OneOf(platformWords()...),
			flags.New("conf-dir", "", &dirs.Conf,
				"Directory of the CNI configuration that the container runtime reads. Empty is",
				"the platform's."),
			flags.New("bin-dir", "", &dirs.Bin,
				"Directory of the CNI plugins that the container runtime runs. Empty is the",
				"platform's."),
			flags.New("run-dir", names.RunDir, &dirs.Run,
				"Directory, on a tmpfs, of the agent's socket, the files of pods, the plugin's",
				"records and the installer's locks."),
			flags.New("cache-dir", "/var/lib/cni", &dirs.Cache,
				"Directory of libcni's results. Uninstalling leaves the plugin's binary where one",
				"of them names it."),
			flags.New("runtime-socket", "", &s.node.RuntimeSocket,
				"CRI socket of the container runtime, which is asked what it has loaded if the",
				"socket is there. Empty is the platform's."),
		),
		flags.In("The chain",
			flags.New("way", "auto", &s.node.Chain.Way,
				"How the plugin gets into the chain. auto is dropin where the runtime loads such",
				"files, standalone with Multus, else inline.").OneOf("auto", "dropin", "owned",
				"inline", "standalone"),
			flags.New("multus-conf-dir", "", &dirs.Multus,
				"standalone: the directory of Multus' configurations. Empty is the platform's."),
			flags.New("attachment", "istio-cni", &s.node.Chain.Attachment,
				"standalone: the name of the NetworkAttachmentDefinition that pods ask for."),
		),
	}
}

func (s *settings) pluginFlags() []flags.Group {
	plugin := &s.node.Plugin
	return []flags.Group{
		flags.In("The plugin",
			flags.New("plugin-binary", "", &plugin.Binary,
				"The plugin that is copied to the node. Empty is sidecar-cni beside this program."),
			flags.New("backend", "auto", &plugin.Backend,
				"What programs the rules. auto tries out what the kernel can.").OneOf("auto",
				"nftables", "iptables-nft", "iptables-legacy"),
			flags.New("host-root", "", &plugin.HostRoot,
				"Where the host's root directory is mounted, whose iptables programs are tried",
				"out and used. Empty is nowhere: then only nftables is."),
			flags.New("exclude-namespaces", "kube-system", &plugin.Excluded,
				"Namespaces whose pods are left alone, separated by commas. The installer's own",
				"is one of them in any case."),
			flags.New("plugin-conf", "{}", &plugin.Conf,
				"Further keys of the plugin's configuration (docs/configuration.md), a JSON",
				"object."),
		),
		flags.In("The plugin's way to the API server",
			flags.New("token-file", "", &s.token.TokenFile,
				"File with the token that the plugin shows to the API server. Empty:",
				"--plugin-account, else the agent's own."),
			flags.New("plugin-account", "", &s.token.Account,
				"ServiceAccount in the installer's namespace for which tokens are requested, so",
				"that the plugin has other rights than the agent."),
			flags.New("ca-file", api.AccountDir+"/ca.crt", &plugin.CAFile,
				"File with the certificates that the API server is known by."),
			flags.New("api-server", "", &plugin.APIServer,
				"URL of the API server, as the node reaches it. Empty is the address of the",
				"service `kubernetes`."),
		),
	}
}

func (s *settings) agentFlags() []flags.Group {
	return []flags.Group{
		flags.In("The agent",
			flags.New("node-name", "", &s.agent.node,
				"Name of the node. Required, but for --dry-run and uninstall."),
			flags.New("namespace", "kube-system", &s.node.Namespace,
				"Namespace of the installer."),
			flags.New("pod-name", "", &s.agent.pod,
				"Name of the agent's own pod. Empty outside of one."),
			flags.New("pod-uid", "", &s.node.PodUID,
				"Its uid. A runtime is believed that runs this pod; without it, one of the name",
				"that the Node object has."),
			flags.New("kubeconfig", "", &s.api.Kubeconfig,
				"How the agent reaches the API server. Empty is the pod's ServiceAccount."),
			flags.New("install-id", "", &s.node.InstallID,
				"A name for this installation. A node that was taken out takes part again in one",
				"of another name. Empty is the uid of the agent's ServiceAccount."),
			flags.New("listen", ":9466", &s.agent.listen,
				"Address of /healthz, /readyz and /metrics."),
			flags.New("log-level", "info", &s.agent.logLevel,
				"From which level on is logged.").OneOf(loglevel.Words...),
		),
		flags.In("What is done about pods and the node",
			flags.New("repair", "repair", &s.pods.mode,
				"What becomes of a meshed pod that runs without redirection.").
				OneOf(string(repair.Off), string(repair.Report), string(repair.Repair),
					string(repair.Evict)),
			flags.New("repair-interval", "5m", &s.pods.every,
				"How often the pods of the node are looked at, beside the start and the end of an",
				"outage."),
			flags.New("guard", string(guard.Auto), &s.guard.mode,
				"What becomes of a meshed pod that nobody has redirected when its sandbox is",
				"set up. auto redirects it before its first container, where the container",
				"runtime has the socket of NRI; with --repair=off, which enters no namespace,",
				"auto is off.").
				OneOf(string(guard.Auto), string(guard.Off), string(guard.Refuse)),
			flags.New("nri-socket", "/var/run/nri/nri.sock", &s.guard.socket,
				"Socket of the container runtime's NRI."),
			flags.New("label-pods", "false", &s.pods.label,
				"Label pods that run without redirection."),
			flags.New("untaint", "false", &s.report.untaint,
				"Remove the taint sidecar-cni.io/not-ready once the chain is effective."),
			flags.New("node-condition", "false", &s.report.condition,
				"Keep the node's condition SidecarCNIReady."),
		),
	}
}

// runOnly are the settings of the run command alone.
func (s *settings) runOnly() flags.Group {
	return flags.In("How often",
		flags.New("once", "false", &s.once,
			"End after one pass: with 0 if the chain is effective, else with 1 and the reason."),
		flags.New("dry-run", "false", &s.dryRun,
			"Print what a pass would change and change nothing. Needs no API server."),
	)
}

// uninstallOnly are the settings of the uninstall command alone.
func (s *settings) uninstallOnly() flags.Group {
	return flags.In("What comes after",
		flags.New("withdrawn", "", &s.node.Withdrawn,
			"When the DaemonSet was withdrawn, by the API server's clock, as",
			"withdraw says it. An agent whose pod was created later takes the node in again.",
			"Empty: none does."),
		flags.New("stay", "false", &s.stay,
			"Stay when the node is out, and be ready on --listen; try again while it is not."),
	)
}

// withdrawOnly are the settings of withdraw.
func (s *settings) withdrawOnly() flags.Group {
	return flags.In("The DaemonSet that is withdrawn",
		flags.New("daemonset", "sidecar-cni", &s.withdraw.DaemonSet,
			"Its name."),
		flags.New("namespace", "kube-system", &s.withdraw.Namespace,
			"Its namespace."),
		flags.New("binding", "", &s.withdraw.Binding,
			"RoleBinding in that namespace which is deleted at the end: the one that grants what",
			"this command needs."),
		flags.New("timeout", "3m", &s.withdraw.Timeout,
			"How long to wait for the nodes."),
		flags.New("kubeconfig", "", &s.api.Kubeconfig,
			"How to reach the API server. Empty is the pod's ServiceAccount."),
		flags.New("log-level", "info", &s.agent.logLevel,
			"From which level on is logged.").OneOf(loglevel.Words...),
	)
}

// levelOnly are the settings of log-level.
func (s *settings) levelOnly() flags.Group {
	return flags.In("The daemon",
		flags.New("listen", ":9466", &s.agent.listen,
			"Address that the daemon listens on; its port counts."),
	)
}

// everySetting are the groups of all commands.
func everySetting() []flags.Group {
	var s settings
	return append(s.common(), s.runOnly(), s.uninstallOnly(), s.withdrawOnly(), s.levelOnly())
}
