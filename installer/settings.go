package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// settings are what an administrator, or the chart for him, decides.
type settings struct {
	platformName, way, confDir, binDir, runDir, cacheDir, multusDir, attachment, runtimeSocket string

	pluginBinary, pluginConf, backend, hostRoot string
	excludeNamespaces                           []string

	tokenFile, caFile, apiServer, pluginAccount string

	nodeName, namespace, kubeconfig, installID, listen, logLevel string
	podName, podUID                                              string

	repair                    string
	repairEvery               time.Duration
	label, untaint, condition bool

	once, dryRun, stay bool
	withdrawn          time.Time

	daemonSet, binding string
	timeout            time.Duration

	inCluster string // the API server's URL by the environment; no flag
}

// setting is one of them: a flag, and a variable of the environment that stands in for it.
type setting struct {
	name    string
	initial string
	words   []string // the values that it can have; any if there are none
	about   string
	field   func(*settings) any
}

// group is a part of the table, as --help shows it.
type group struct {
	title    string
	settings []setting
}

const envPrefix = "SIDECAR_CNI_"

// env is the variable's name.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

var table = []group{
	{"The node's directories", []setting{
		{"platform", "auto", platformWords, "Kind of cluster, which decides about the defaults of the directories and the runtime's socket. auto asks the API server what the node is.", func(s *settings) any { return &s.platformName }},
		{"conf-dir", "", nil, "Directory of the CNI configuration that the container runtime reads. Empty is the platform's.", func(s *settings) any { return &s.confDir }},
		{"bin-dir", "", nil, "Directory of the CNI plugins that the container runtime runs. Empty is the platform's.", func(s *settings) any { return &s.binDir }},
		{"run-dir", "/run/sidecar-cni", nil, "Directory, on a tmpfs, of the agent's socket, the plugin's records and the installer's locks.", func(s *settings) any { return &s.runDir }},
		{"cache-dir", "/var/lib/cni", nil, "Directory of libcni's results. Uninstalling leaves the plugin's binary where one of them names it.", func(s *settings) any { return &s.cacheDir }},
		{"runtime-socket", "", nil, "CRI socket of the container runtime, which is asked what it has loaded if the socket is there. Empty is the platform's.", func(s *settings) any { return &s.runtimeSocket }},
	}},
	{"The chain", []setting{
		{"way", "auto", []string{"auto", "dropin", "owned", "inline", "standalone"}, "How the plugin gets into the chain. auto is dropin where the runtime loads such files, standalone with Multus, else inline.", func(s *settings) any { return &s.way }},
		{"multus-conf-dir", "", nil, "standalone: the directory of Multus' configurations. Empty is the platform's.", func(s *settings) any { return &s.multusDir }},
		{"attachment", "istio-cni", nil, "standalone: the name of the NetworkAttachmentDefinition that pods ask for.", func(s *settings) any { return &s.attachment }},
	}},
	{"The plugin", []setting{
		{"plugin-binary", "", nil, "The plugin that is copied to the node. Empty is sidecar-cni beside this program.", func(s *settings) any { return &s.pluginBinary }},
		{"backend", "auto", []string{"auto", "nftables", "iptables-nft", "iptables-legacy"}, "What programs the rules. auto tries out what the kernel can.", func(s *settings) any { return &s.backend }},
		{"host-root", "", nil, "Where the host's root directory is mounted, whose iptables programs are tried out and used. Empty is nowhere: then only nftables is.", func(s *settings) any { return &s.hostRoot }},
		{"exclude-namespaces", "kube-system", nil, "Namespaces whose pods are left alone, separated by commas. The installer's own is one of them in any case.", func(s *settings) any { return &s.excludeNamespaces }},
		{"plugin-conf", "{}", nil, "Further keys of the plugin's configuration (docs/configuration.md), a JSON object.", func(s *settings) any { return &s.pluginConf }},
	}},
	{"The plugin's way to the API server", []setting{
		{"token-file", "", nil, "File with the token that the plugin shows to the API server. Empty: --plugin-account, else the agent's own.", func(s *settings) any { return &s.tokenFile }},
		{"plugin-account", "", nil, "ServiceAccount in the installer's namespace for which tokens are requested, so that the plugin has other rights than the agent.", func(s *settings) any { return &s.pluginAccount }},
		{"ca-file", serviceAccountDir + "/ca.crt", nil, "File with the certificates that the API server is known by.", func(s *settings) any { return &s.caFile }},
		{"api-server", "", nil, "URL of the API server, as the node reaches it. Empty is the address of the service `kubernetes`.", func(s *settings) any { return &s.apiServer }},
	}},
	{"The agent", []setting{
		{"node-name", "", nil, "Name of the node. Required, but for --dry-run and uninstall.", func(s *settings) any { return &s.nodeName }},
		{"namespace", "kube-system", nil, "Namespace of the installer.", func(s *settings) any { return &s.namespace }},
		{"pod-name", "", nil, "Name of the agent's own pod. Empty outside of one.", func(s *settings) any { return &s.podName }},
		{"pod-uid", "", nil, "Its uid. A runtime is believed that runs this pod; without it, one of the name that the Node object has.", func(s *settings) any { return &s.podUID }},
		{"kubeconfig", "", nil, "How the agent reaches the API server. Empty is the pod's ServiceAccount.", func(s *settings) any { return &s.kubeconfig }},
		{"install-id", "", nil, "A name for this installation. A node that was taken out takes part again in one of another name. Empty is the uid of the agent's ServiceAccount.", func(s *settings) any { return &s.installID }},
		{"listen", ":9466", nil, "Address of /healthz, /readyz and /metrics.", func(s *settings) any { return &s.listen }},
		{"log-level", "info", levelWords, "From which level on is logged.", func(s *settings) any { return &s.logLevel }},
	}},
	{"What is done about pods and the node", []setting{
		{"repair", "repair", []string{"off", "report", "repair", "evict"}, "What becomes of a meshed pod that runs without redirection.", func(s *settings) any { return &s.repair }},
		{"repair-interval", "5m", nil, "How often the pods of the node are looked at, beside the start and the end of an outage.", func(s *settings) any { return &s.repairEvery }},
		{"label-pods", "false", nil, "Label pods that run without redirection.", func(s *settings) any { return &s.label }},
		{"untaint", "false", nil, "Remove the taint sidecar-cni.io/not-ready once the chain is effective.", func(s *settings) any { return &s.untaint }},
		{"node-condition", "false", nil, "Keep the node's condition SidecarCNIReady.", func(s *settings) any { return &s.condition }},
	}},
}

// runOnly are the settings of the run command alone.
var runOnly = group{"How often", []setting{
	{"once", "false", nil, "End after one pass: with 0 if the chain is effective, else with 1 and the reason.", func(s *settings) any { return &s.once }},
	{"dry-run", "false", nil, "Print what a pass would change and change nothing. Needs no API server.", func(s *settings) any { return &s.dryRun }},
}}

// uninstallOnly are the settings of the uninstall command alone.
var uninstallOnly = group{"What comes after", []setting{
	{"withdrawn", "", nil, "When the DaemonSet was told to take its nodes out, by the API server's clock, as withdraw says it. An agent whose pod was created later takes the node in again. Empty: none does.", func(s *settings) any { return &s.withdrawn }},
	{"stay", "false", nil, "Stay when the node is out, and be ready on --listen; try again while it is not.", func(s *settings) any { return &s.stay }},
}}

// define adds the groups' flags.
func (s *settings) define(flags *pflag.FlagSet, groups []group) {
	for _, g := range groups {
		for _, one := range g.settings {
			v := &value{setting: one, field: one.field(s)}
			if err := v.Set(one.initial); err != nil {
				panic(fmt.Sprintf("--%s: its default: %v", one.name, err)) // a mistake in the table, which every start would meet
			}
			f := flags.VarPF(v, one.name, "", one.about)
			if v.Type() == "bool" {
				f.NoOptDefVal = "true"
			}
		}
	}
}

// value makes a setting a pflag.Value.
type value struct {
	setting
	field any
	text  string
}

func (v *value) String() string { return v.text }

func (v *value) Type() string {
	switch v.field.(type) {
	case *bool:
		return "bool"
	case *time.Duration:
		return "duration"
	}
	return "text"
}

func (v *value) Set(text string) error {
	if len(v.words) > 0 && !slices.Contains(v.words, text) {
		return fmt.Errorf("want one of %s", strings.Join(v.words, ", "))
	}
	v.text = text
	switch field := v.field.(type) {
	case *string:
		*field = text
	case *[]string:
		*field = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("want true or false")
		}
		*field = b
	case *time.Time:
		at, err := time.Parse(time.RFC3339, text)
		if err != nil && text != "" {
			return errors.New("want a time such as 2026-01-02T15:04:05Z")
		}
		*field = at
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second {
			return errors.New("want a duration of at least 1s, such as 5m")
		}
		*field = d
	}
	return nil
}

// serviceLink is what the kubelet sets for a Service whose name begins like ours.
var serviceLink = regexp.MustCompile(`_(SERVICE_(HOST|PORT.*)|PORT(_.*)?)$`)

// fromEnvironment sets the flags that the command line leaves out. A variable of ours that stands
// for nothing, in no command, is a mistake: all commands that run in a pod have the same variables.
func fromEnvironment(flags *pflag.FlagSet, environ []string) error {
	known := map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(*value); ok {
			known[v.env()] = f
		}
	})
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		f, ok := known[name]
		switch {
		case !ok && strings.HasPrefix(name, envPrefix) && !serviceLink.MatchString(name) && !knownVariable(name):
			return fmt.Errorf("variable %s: there is no such setting; see --help", name)
		case !ok, f.Changed:
		default:
			if err := flags.Set(f.Name, text); err != nil {
				return fmt.Errorf("variable %s: %w", name, err)
			}
		}
	}
	return nil
}

// knownVariable reports whether a variable stands for a setting of any command.
func knownVariable(name string) bool {
	for _, g := range slices.Concat(table, withdrawTable, levelTable, []group{runOnly, uninstallOnly}) {
		if slices.ContainsFunc(g.settings, func(s setting) bool { return s.env() == name }) {
			return true
		}
	}
	return false
}

// help writes the groups as a person reads them.
func help(out io.Writer, groups []group) {
	for _, g := range groups {
		fmt.Fprintf(out, "\n%s\n", g.title)
		for _, s := range g.settings {
			form := strings.Join(s.words, "|")
			if form != "" {
				form = " " + form
			}
			fmt.Fprintf(out, "  --%s%s\n", s.name, form)
			about := s.about
			if s.initial != "" && s.initial != "false" {
				about += " (" + s.initial + ")"
			}
			for _, line := range wrap(about, 96) {
				fmt.Fprintf(out, "        %s\n", line)
			}
		}
	}
	fmt.Fprintf(out, "\nEach flag has a variable of the environment: --conf-dir is %s.\n", setting{name: "conf-dir"}.env())
}

// wrap breaks a text into lines of at most so many bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
