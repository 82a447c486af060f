package deployments_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

func TestLint(t *testing.T) {
	t.Parallel()
	if out, err := helm(t, "lint", "--strict", "chart", someImage); err != nil {
		t.Error(out, err)
	}
}

// TestPlatforms holds the chart's table to the installer's: what is mounted is what the agent looks
// for.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	type place struct {
		ConfDir       string `json:"confDir"`
		BinDir        string `json:"binDir"`
		RuntimeSocket string `json:"runtimeSocket"`
		MultusConfDir string `json:"multusConfDir"`
	}
	want, names := map[string]place{}, []string{}
	for _, p := range platforms.All {
		want[p.Name] = place{p.ConfDir, p.BinDir, p.RuntimeSocket, p.MultusConfDir}
		names = append(names, p.Name)
	}
	have := map[string]place{}
	read(t, "chart/platforms.yaml", &have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("platforms.yaml (-the installer's +the chart's):\n%s", diff)
	}
	var schema struct {
		Properties struct {
			Platform struct {
				Enum []string `json:"enum"`
			} `json:"platform"`
		} `json:"properties"`
	}
	read(t, "chart/values.schema.json", &schema)
	if diff := cmp.Diff(names, schema.Properties.Platform.Enum); diff != "" {
		t.Errorf("values.schema.json (-the installer's +the chart's):\n%s", diff)
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMistakes are values that are refused, each with words that help.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		want   string
	}{
		{"a typo", []string{"platforms=gke"}, "'platforms' not allowed"},
		{"a typo further down", []string{"repair.mod=off"}, "'mod' not allowed"},
		{"a platform that nobody knows", []string{"platform=autopilot"},
			"value must be one of 'aks'"},
		{"a mode that nobody knows", []string{"repair.mode=delete"}, "value must be one of 'off'"},
		{"a relative directory", []string{"confDir=etc/cni"}, "/confDir"},
		{"a text for a switch", []string{"untaint=sometimes"}, "want boolean"},
		{"a number without a unit", []string{"repair.interval=5"}, "/repair/interval"},
		{"an interval of nothing", []string{"repair.interval=0m0s"}, "/repair/interval"},
		{"no time to uninstall", []string{"uninstall.timeout=0s"}, "/uninstall/timeout"},
		{"labels without repair", []string{"labelPods=true", "repair.mode=off", "tool.live=true"},
			"labelPods: repair.mode is off"},
		{"a way up in a path", []string{"binDir=/opt/../usr/bin"}, "/binDir"},
		{"a way up at the end", []string{"multusConfDir=/etc/.."}, "/multusConfDir"},
		{"a socket for which the root would be mounted", []string{"runtimeSocket=/x.sock"},
			"/runtimeSocket"},
		{"a key that the plugin does not have", []string{"pluginConf.deadlin=5s"},
			"'deadlin' not allowed"},
		{"the same further down", []string{"pluginConf.redirect.ports.dnss=1"},
			"'dnss' not allowed"},
		{"a key of the plugin that another value is for", []string{"pluginConf.backend=nftables"},
			"'backend' not allowed"},
		{"a port that there is not", []string{"pluginConf.redirect.ports.dns=65536"},
			"/pluginConf/redirect/ports/dns"},
		{"no deadline", []string{"pluginConf.deadline=0s"}, "/pluginConf/deadline"},
		{"the selector's label", []string{`podLabels.app\.kubernetes\.io/name=mine`}, "/podLabels"},
		{"the selector's other label", []string{`podLabels.app\.kubernetes\.io/component=mine`},
			"/podLabels"},
		{"an annotation that is there", []string{`podAnnotations.sidecar\.istio\.io/inject=true`},
			"/podAnnotations"},
		{"a monitor's label that is there",
			[]string{`podMonitor.labels.app\.kubernetes\.io/version=9`}, "/podMonitor/labels"},
		{"a variable that is there", []string{"extraEnv[0].name=NODE_NAME"}, "/extraEnv/0/name"},
		{"no image", []string{"image.repository="}, "image.repository: set it to the name that " +
			"the image has in your registry"},
		{"a capability that there is not", []string{"extraCapabilities={ALL}"},
			"/extraCapabilities/0"},
		{"the agent's own port, twice", []string{"extraEnv[0].name=SIDECAR_CNI_LISTEN"},
			"/extraEnv/0/name"},
		{"a socket where the conf is", []string{"runtimeSocket=/etc/cni/x.sock"},
			"two of them need the same directory mounted"},
		{"Multus where the conf is", []string{"way=standalone", "multusConfDir=/etc/cni"},
			"two of them need the same directory mounted"},
		{"more nodes than there are", []string{"maxSurge=1000000"}, "/maxSurge"},
		{"a digest that is none", []string{"image.digest=latest"}, "/image/digest"},
		{"standalone where nobody knows Multus' directory",
			[]string{"platform=k3s", "way=standalone"},
			"multusConfDir: way standalone needs it on k3s"},
		{"labels that nobody sets", []string{"repair.mode=off", "labelPods=true"},
			"labelPods: repair.mode is off"},
		{"a guard that nobody knows", []string{"guard.mode=on"}, "value must be one of 'auto'"},
		{"a typo of the guard's", []string{"guard.sock=/run/x/nri.sock"}, "'sock' not allowed"},
		{"a guard without a socket", []string{"guard.socket="}, "/guard/socket"},
		{"a guard's socket for which the root would be mounted",
			[]string{"guard.socket=/nri.sock"}, "/guard/socket"},
		{"a guard's socket where the conf is", []string{"guard.socket=/etc/cni/nri.sock"},
			"two of them need the same directory mounted"},
		{"a guard that refuses and may not look",
			[]string{"guard.mode=refuse", "repair.mode=off"},
			"set repair.mode to report, repair or evict, or guard.mode to off"},
		{"an annotation for a guard that is off",
			[]string{"guard.requiredPlugin=true", "guard.mode=off"},
			"guard.requiredPlugin: the guard is off"},
		{"an annotation for a guard that may not look",
			[]string{"guard.requiredPlugin=true", "repair.mode=off"},
			"guard.requiredPlugin: the guard is off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := render(t, "mesh", c.values...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %q", c.values, err, c.want)
			}
		})
	}
}

func TestRefusedWithoutAdmissionPolicies(t *testing.T) {
	t.Parallel()
	for _, feature := range []string{"untaint", "nodeCondition", "labelPods",
		"guard.requiredPlugin"} {
		_, err := helm(t, "template", "x", "chart", someImage, "--set="+feature+"=true")
		if err == nil || !strings.Contains(err.Error(), "no ValidatingAdmissionPolicy") {
			t.Errorf("%s: %v, want a refusal", feature, err)
		}
	}
	_, err := helm(t, "template", "x", "chart", "--kube-version=1.29.9")
	if err == nil || !strings.Contains(err.Error(), "requires kubeVersion: >=1.30.0-0") {
		t.Errorf("Kubernetes 1.29: %v, want a refusal", err)
	}
}

// TestArguments has the programs themselves read what the chart tells them, also as uninstall's Job
// rewrites it.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			objects := s.objects(t)
			run := agent(t, as[appsv1.DaemonSet](t, find(t, objects, "DaemonSet", "sidecar-cni"))).
				Args
			if run[0] != "run" {
				t.Fatalf("%v: want run first, which withdraw looks for", run)
			}
			withdraw := as[batchv1.Job](t, find(t, objects, "Job", "sidecar-cni-uninstall")).
				Spec.Template.Spec.Containers[0].Args
			for _, args := range [][]string{run,
				append([]string{"uninstall", "--stay"}, run[1:]...), withdraw} {
				if err := installer.accept(t, args); err != nil {
					t.Errorf("%v: %v", args, err)
				}
			}
		})
	}
}

// TestMounts holds that each directory that the agent is told of is the host's own, in the same
// place, and that nothing else of the host is there.
func TestMounts(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			d := s.daemonSet(t)
			host := map[string]string{}
			for _, v := range d.Spec.Template.Spec.Volumes {
				host[v.Name] = v.HostPath.Path
			}
			have := map[string]string{}
			for _, m := range agent(t, d).VolumeMounts {
				have[m.MountPath] = "writable"
				if m.ReadOnly {
					have[m.MountPath] = "read only"
				}
				follows := m.MountPropagation != nil &&
					*m.MountPropagation == corev1.MountPropagationHostToContainer
				if follows != (m.Name == "netns") {
					t.Errorf("%s: follows the host's mounts: %v", m.MountPath, follows)
				}
				if host[m.Name] != m.MountPath &&
					host[m.Name] != strings.TrimPrefix(m.MountPath, "/var") &&
					m.MountPath != "/host" {
					t.Errorf("%s is the host's %s", m.MountPath, host[m.Name])
				}
			}
			if diff := cmp.Diff(s.mounts(t), have); diff != "" {
				t.Errorf("mounts (-want +have):\n%s", diff)
			}
		})
	}
}

// mounts are those that a scenario needs, by the words of its values.
func (s scenario) mounts(t *testing.T) map[string]string {
	t.Helper()
	given := map[string]string{"platform": "kubeadm", "repair.mode": "repair",
		"guard.mode": "auto", "guard.socket": "/run/nri/nri.sock"}
	for _, v := range s.values {
		key, value, _ := strings.Cut(v, "=")
		given[key] = value
	}
	p, ok := platforms.Named(given["platform"])
	if !ok {
		t.Fatalf("platform %s", given["platform"])
	}
	mounted := map[string][]string{ // in place of what is below them
		"k3d": nil, "k3s": {"/var/lib/rancher/k3s/data"}, "microk8s": {"/var/snap/microk8s"},
		"gke": {"/etc/cni"}, "openshift": nil,
	}
	parents, ok := mounted[p.Name]
	if !ok {
		parents = []string{"/etc/cni", "/opt/cni"}
	}
	value := func(key, initial string) string {
		if given[key] != "" {
			return given[key]
		}
		return initial
	}
	dir := func(key, initial string) string {
		dir := value(key, initial)
		for _, parent := range parents {
			if strings.HasPrefix(dir, parent+"/") {
				return parent
			}
		}
		return dir
	}
	want := map[string]string{
		dir("confDir", p.ConfDir): "writable", dir("binDir", p.BinDir): "writable",
		"/run/sidecar-cni": "writable",
		"/var/lib/cni":     "read only", filepath.Dir(p.RuntimeSocket): "read only",
	}
	if given["platform"] == "openshift" || given["way"] == "standalone" {
		want[value("multusConfDir", p.MultusConfDir)] = "writable"
	}
	if given["repair.mode"] != "off" || given["tool.live"] == "true" {
		want["/run/netns"], want["/var/run/netns"] = "read only", "read only"
	}
	if given["repair.mode"] != "off" && given["guard.mode"] != "off" {
		want[filepath.Dir(given["guard.socket"])] = "read only"
	}
	if strings.HasPrefix(given["backend"], "iptables") {
		want["/host"] = "read only"
	}
	return want
}

// A right is something that the agent gets, and the features that it is for.
type right struct{ what, when, why string }

// entering is when the agent enters pods' network namespaces.
const entering = "repair.mode other than off, or tool.live"

// rights is the table of the chart's README, and what the chart is held to.
var rights = []right{
	{"uid 0", "always", "the directories of the host belong to root"},
	{"NET_ADMIN", "always", "nftables is tried out, in the agent's own network namespace"},
	{"CHOWN", "always", "a network configuration that is edited and belongs to somebody else " +
		"stays his"},
	{"SYS_ADMIN", entering, "pods' network namespaces are entered"},
	{"SYS_PTRACE", entering,
		"namespaces of pods without a record are found in /proc"},
	{"DAC_READ_SEARCH", entering, "tables of legacy iptables are looked for " +
		"in pods with their own user namespace"},
	{"hostPID", entering, "the same: /proc has to be the host's"},
	{"AppArmor Unconfined", entering, "AppArmor's default profile denies " +
		"what SYS_PTRACE allows"},
	{"SYS_CHROOT", "backend iptables-*", "the host's iptables runs in the host's root directory, " +
		"mounted read only"},
	{"NET_RAW", "backend iptables-legacy", "it speaks to the kernel through a raw socket"},
	{"SETUID", "tool.live", "`sidecarctl trace --live` sends its packet as the user that it is " +
		"asked about"},
	{"SETGID", "tool.live", "the same for the group"},
	{"SELinux spc_t", "always", "container_t may not write the runtime's directories; without " +
		"SELinux it means nothing"},
}

func TestRights(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"off", "report", "repair", "evict"} {
		for _, backend := range []string{"auto", "nftables", "iptables-nft", "iptables-legacy"} {
			for _, live := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %t", mode, backend, live), func(t *testing.T) {
					t.Parallel()
					d := scenario{"", "mesh", []string{"repair.mode=" + mode,
						"backend=" + backend, fmt.Sprintf("tool.live=%t", live)}}.daemonSet(t)
					var want []string
					for _, r := range rights {
						iptables, ok := strings.CutPrefix(r.when, "backend ")
						matches, err := path.Match(iptables, backend)
						if err != nil {
							t.Fatal(err)
						}
						if r.when == "always" || ok && matches ||
							r.when == entering && (mode != "off" || live) ||
							r.when == "tool.live" && live {
							want = append(want, r.what)
						}
					}
					if diff := cmp.Diff(slices.Sorted(slices.Values(want)),
						granted(t, d)); diff != "" {
						t.Errorf("rights (-want +have):\n%s", diff)
					}
				})
			}
		}
	}
}

// granted lists what a DaemonSet's pods may, and checks what they may never.
func granted(t *testing.T, d *appsv1.DaemonSet) []string {
	t.Helper()
	pod, c := d.Spec.Template.Spec, agent(t, d)
	sc := c.SecurityContext
	switch {
	case sc.Privileged != nil || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem,
		pod.HostNetwork || pod.HostIPC,
		pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault,
		len(sc.Capabilities.Drop) != 1 || sc.Capabilities.Drop[0] != "ALL":
		t.Errorf("more than is needed: %+v %+v", pod.SecurityContext, sc)
	}
	have := []string{fmt.Sprintf("uid %d", *sc.RunAsUser),
		"SELinux " + pod.SecurityContext.SELinuxOptions.Type}
	for _, right := range sc.Capabilities.Add {
		have = append(have, string(right))
	}
	if pod.HostPID {
		have = append(have, "hostPID")
	}
	if sc.AppArmorProfile != nil {
		have = append(have, "AppArmor "+string(sc.AppArmorProfile.Type))
	}
	return slices.Sorted(slices.Values(have))
}

// TestDaemonSet holds what keeps every node covered.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	d := scenario{"", "kube-system", nil}.daemonSet(t)
	pod, update := d.Spec.Template.Spec, d.Spec.UpdateStrategy.RollingUpdate
	limits := agent(t, d).Resources.Limits
	for what, ok := range map[string]bool{
		"maxSurge is 10%": update.MaxSurge.StrVal == "10%",
		"maxUnavailable is 0": update.MaxUnavailable.IntValue() == 0 &&
			update.MaxUnavailable.StrVal == "",
		"the priority is system-node-critical": pod.PriorityClassName == "system-node-critical",
		"everything is tolerated": cmp.Equal(pod.Tolerations,
			[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}),
		"variables of Services do not get in": pod.EnableServiceLinks != nil &&
			!*pod.EnableServiceLinks,
		"the selector tells agents from other pods": d.Spec.Selector.MatchLabels["app.kubernetes.io/component"] == "agent",
		"the pod's labels are the selector's": cmp.Equal(
			d.Spec.Selector.MatchLabels["app.kubernetes.io/name"],
			d.Spec.Template.Labels["app.kubernetes.io/name"]),
		"the plugin's token is not the agent's": slices.Contains(agent(t, d).Args,
			"--plugin-account=sidecar-cni-plugin"),
		"ready is /readyz": agent(t, d).
			ReadinessProbe.HTTPGet.Path == "/readyz",
		"alive is /healthz": agent(t, d).
			LivenessProbe.HTTPGet.Path == "/healthz",
		"the end is waited for": *pod.TerminationGracePeriodSeconds > 0,
		"memory is bounded, the processor's time not": limits.Cpu().IsZero() &&
			!limits.Memory().IsZero(),
	} {
		if !ok {
			t.Errorf("%s: not so", what)
		}
	}
}

// TestFeatures renders each value that is not an argument, and looks for what it changes.
func TestFeatures(t *testing.T) {
	t.Parallel()
	plain, err := render(t, "mesh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ value, want string }{
		{"image.repository=registry.example/mesh/sidecar-cni",
			"image: registry.example/mesh/sidecar-cni:0.1.0"},
		{"image.tag=next", "image: sidecar-cni/sidecar-cni:next"},
		{"image.digest=sha256:" + strings.Repeat("0", 64),
			"image: sidecar-cni/sidecar-cni@sha256:0000"},
		{"image.pullPolicy=Never", "imagePullPolicy: Never"},
		{"image.pullSecrets[0].name=registry", "imagePullSecrets:\n        - name: registry"},
		{"confDir=/etc/other", "--conf-dir=/etc/other"},
		{"binDir=/usr/libexec/cni", "path: /usr/libexec/cni"},
		{"confDir=/etc/...d/.hidden", "--conf-dir=/etc/...d/.hidden"},
		{"runtimeSocket=/run/crio/crio.sock", "path: /run/crio\n"},
		{"excludeNamespaces={a,b}", "--exclude-namespaces=a,b"},
		{"pluginConf.dnsCapture=all", `"--plugin-conf={\"dnsCapture\":\"all\"}"`},
		{"pluginConf.logFile=/$(HOME)", `/$$(HOME)`},
		{"apiServer=https://kube:6443", "--api-server=https://kube:6443"},
		{"repair.interval=10m", "--repair-interval=10m"},
		{"labelPods=true", "verbs: [get, list, watch, patch]"},
		{"untaint=true", "name: sidecar-cni-taint"},
		{"nodeCondition=true", "name: sidecar-cni-condition"},
		{"repair.mode=evict", "resources: [pods/eviction]"},
		{"logLevel=debug", "--log-level=debug"},
		{"port=9999", "value: \":9999\""},
		{"mountParents=false", "path: /opt/cni/bin\n"},
		{"extraCapabilities={DAC_OVERRIDE}", "add: [NET_ADMIN, CHOWN, SYS_ADMIN, SYS_PTRACE, " +
			"DAC_READ_SEARCH, DAC_OVERRIDE]"},
		{"runtimeSocket=/var/run/cri-dockerd.sock", "mountPath: /run\n"},
		{"maxSurge=1", "maxSurge: 1\n"},
		{"revisionHistoryLimit=3", "revisionHistoryLimit: 3"},
		{"extraEnv[0].name=HTTPS_PROXY", "- name: HTTPS_PROXY"},
		{"affinity.podAntiAffinity.a=b", "podAntiAffinity"},
		{"nodeSelector.zone=a", "zone: a"},
		{"tolerations[0].key=only", "key: only"},
		{"priorityClassName=mesh", "priorityClassName: mesh"},
		{"resources.requests.cpu=1", "cpu: 1\n"},
		{"podAnnotations.team=mesh", "team: mesh"},
		{"podLabels.team=mesh", "team: mesh"},
		{"seLinuxType=super_t", "type: super_t"},
		{"networkPolicy.from[0].ipBlock.cidr=10.0.0.0/8", "cidr: 10.0.0.0/8"},
		{"podMonitor.enabled=true", "kind: PodMonitor"},
		{"serviceMonitor.enabled=true", "kind: ServiceMonitor"},
		{"prometheusRule.enabled=true", "alert: SidecarCNIPodsNotRedirected"},
		{"dashboard.enabled=true", "grafana_dashboard: \"1\""},
		{"platform=gke", "kind: ResourceQuota"},
		{"resourceQuota.enabled=true", "pods: \"5000\""},
		{"platform=openshift", "kind: SecurityContextConstraints"},
		{"platform=k0s", "path: /run/k0s\n"},
		{"way=standalone", "kind: NetworkAttachmentDefinition"},
		{"uninstall.timeout=1m30s", "activeDeadlineSeconds: 150"},
		{"guard.mode=off", "--guard=off"},
		{"guard.mode=refuse", "--guard=refuse"},
		{"repair.mode=off", "--guard=off"},
		{"guard.socket=/run/crio/nri/nri.sock", "--nri-socket=/run/crio/nri/nri.sock"},
		{"guard.socket=/run/crio/nri/nri.sock", "path: /run/crio/nri\n"},
		{"guard.socket=/var/run/other/nri.sock", "--nri-socket=/run/other/nri.sock"},
		{"guard.socket=/var/run/other/nri.sock", "mountPath: /run/other\n"},
		{"guard.requiredPlugin=true", "name: sidecar-cni-required-plugin"},
		{"tool.live=true", "DAC_READ_SEARCH, SETUID, SETGID]"},
		{"tool.role=true", "name: sidecar-cni-tool"},
	} {
		t.Run(c.value, func(t *testing.T) {
			t.Parallel()
			text, err := render(t, "mesh", c.value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(plain, c.want) || !strings.Contains(text, c.want) {
				t.Errorf("%s: want %q, and not without", c.value, c.want)
			}
		})
	}
}

// TestJob holds that the uninstalling Job goes where agents can be, and with the administrator's
// variables.
func TestJob(t *testing.T) {
	t.Parallel()
	objects := scenario{"", "mesh",
		[]string{"extraEnv[0].name=HTTPS_PROXY", "extraEnv[0].value=http://proxy:1",
			"affinity.podAntiAffinity.a=b"}}.objects(t)
	job := as[batchv1.Job](t, find(t, objects, "Job", "sidecar-cni-uninstall")).Spec.Template.Spec
	agents := as[appsv1.DaemonSet](t,
		find(t, scenario{"", "mesh", nil}.objects(t), "DaemonSet", "sidecar-cni")).
		Spec.Template.Spec
	if diff := cmp.Diff(agents.Affinity, job.Affinity); diff != "" || job.Affinity == nil {
		t.Errorf("affinity (-an agent's of its own +the Job's):\n%s", diff)
	}
	if !slices.Contains(job.Containers[0].Env,
		corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy:1"}) {
		t.Errorf("variables %v", job.Containers[0].Env)
	}
}

// TestAttachment leaves out what another chart owns.
func TestAttachment(t *testing.T) {
	t.Parallel()
	for create, want := range map[string]int{"true": 1, "false": 0} {
		text, err := render(t, "mesh", "platform=openshift", "attachment.create="+create)
		if n := strings.Count(text, "kind: NetworkAttachmentDefinition"); err != nil || n != want {
			t.Errorf("attachment.create=%s: %d of them, want %d: %v", create, n, want, err)
		}
	}
}

// TestPluginConf gives the plugin its own defaults, each key that no value of the chart's stands
// for.
func TestPluginConf(t *testing.T) {
	t.Parallel()
	elsewhere := []string{"backend", "agentSocket", "kubeconfig", "stateDir", "excludeNamespaces"}
	for _, s := range netconf.Settings {
		if slices.Contains(elsewhere, s.Key) {
			continue
		}
		conf := json.RawMessage(s.Initial)
		keys := strings.Split(s.Key, ".")
		for _, key := range slices.Backward(keys) {
			conf = json.RawMessage(fmt.Sprintf("{%q: %s}", key, conf))
		}
		if _, err := helm(t, "template", "sidecar-cni", "chart", policies, someImage,
			"--set-json=pluginConf="+string(conf)); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
	}
}

// TestAffinity: what an administrator demands of nodes is demanded beside what we do, in each of
// his terms. Nodes that an agent cannot be on would hold up rollout and uninstallation for ever.
func TestAffinity(t *testing.T) {
	t.Parallel()
	ours := []corev1.NodeSelectorRequirement{
		{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}},
		{Key: "kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn,
			Values: []string{"amd64", "arm64"}},
		{Key: "eks.amazonaws.com/compute-type", Operator: corev1.NodeSelectorOpNotIn,
			Values: []string{"fargate"}},
		{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}},
	}
	const node = "affinity.nodeAffinity."
	term := func(i int, key string) []string {
		path := fmt.Sprintf("%srequiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[%d].matchExpressions[0].", node, i)
		return []string{path + "key=" + key, path + "operator=Exists"}
	}
	with := func(keys ...string) (terms []corev1.NodeSelectorTerm) {
		for _, key := range keys {
			one := slices.Clone(ours)
			if key != "" {
				one = append(one, corev1.NodeSelectorRequirement{Key: key,
					Operator: corev1.NodeSelectorOpExists})
			}
			terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: one})
		}
		return terms
	}
	preferred := []string{node + "preferredDuringSchedulingIgnoredDuringExecution[0].weight=7"}
	for name, c := range map[string]struct {
		values []string
		want   []corev1.NodeSelectorTerm
	}{
		"nothing said":  {nil, with("")},
		"one term":      {term(0, "a"), with("a")},
		"two terms":     {slices.Concat(term(0, "a"), term(1, "b")), with("a", "b")},
		"another field": {preferred, with("")},
	} {
		affinity := scenario{"", "kube-system", c.values}.daemonSet(t).
			Spec.Template.Spec.Affinity.NodeAffinity
		if diff := cmp.Diff(c.want,
			affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		if have := len(affinity.PreferredDuringSchedulingIgnoredDuringExecution) == 1; have != (name == "another field") {
			t.Errorf("%s: preferred %v", name, affinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
}

// TestQuotaOnlyWhereItIsNeeded looks into the namespace that needs none.
func TestQuotaOnlyWhereItIsNeeded(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]bool{"kube-system": false, "mesh": true} {
		text, err := render(t, namespace, "platform=gke")
		if err != nil {
			t.Fatal(err)
		}
		if have := strings.Contains(text, "kind: ResourceQuota"); have != want {
			t.Errorf("namespace %s: quota %v, want %v", namespace, have, want)
		}
	}
}

// TestImage holds chart and Dockerfile together.
func TestImage(t *testing.T) {
	t.Parallel()
	recipe, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FROM scratch", "--chmod=0555", `ENTRYPOINT ["/sidecar-cni-installer"]`,
		"AS sidecarctl\n", `ENTRYPOINT ["/sidecarctl"]`, "USER 65532:65532"} {
		if !strings.Contains(string(recipe), want) {
			t.Errorf("Dockerfile: want %s", want)
		}
	}
	var chart struct{ Version, AppVersion string }
	read(t, "chart/Chart.yaml", &chart)
	if chart.Version != chart.AppVersion {
		t.Errorf("chart %s, programs %s: they are released together", chart.Version, chart.AppVersion)
	}
}

// TestPackage holds what is delivered: what templates read, and nothing of Go's.
func TestPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := helm(t, "package", "chart", "--destination="+dir); err != nil {
		t.Fatal(out, err)
	}
	out, err := command("tar", "-tzf", filepath.Join(dir, "sidecar-cni-0.1.0.tgz")).Output()
	if err != nil {
		t.Fatal(told(err))
	}
	for _, want := range []string{"platforms.yaml", "injector-alerts.yaml", "injection/config.yaml",
		"injection/mesh.yaml", "injection/values.yaml"} {
		if !strings.Contains(string(out), "sidecar-cni/"+want+"\n") {
			t.Errorf("it lacks %s:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), ".go\n") {
		t.Errorf("it has programs:\n%s", out)
	}
}

// TestNotes shows them, as an administrator sees them.
func TestNotes(t *testing.T) {
	t.Parallel()
	for namespace, wants := range map[string][]string{
		"kube-system": {"kubectl -n kube-system rollout status daemonset/sidecar-cni", "--set pilot.cni.enabled=true"},
		"mesh": {"kubectl -n mesh rollout status", "kubectl label namespace mesh pod-security.kubernetes.io/enforce=privileged",
			"set tool.live to false"},
	} {
		notes := notesOf(t, namespace, fmt.Sprintf("tool.live=%t", namespace == "mesh"))
		for _, want := range wants {
			if !strings.Contains(notes, want) {
				t.Errorf("namespace %s: want %q\n%s", namespace, want, notes)
			}
		}
	}
}

// notesOf are those of an installation.
func notesOf(t *testing.T, namespace string, values ...string) string {
	t.Helper()
	args := []string{"install", "sidecar-cni", "chart", "--namespace=" + namespace,
		"--dry-run=client", "--output=json", someImage}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	out, err := helm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Info struct {
			Notes string `json:"notes"`
		} `json:"info"`
	}
	if err := json.Unmarshal([]byte(out), &release); err != nil {
		t.Fatal(err)
	}
	return release.Info.Notes
}
