package deployments_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// TestInjectorMistakes are values of the injector that are refused, each with words that help.
func TestInjectorMistakes(t *testing.T) {
	t.Parallel()
	certificates := func(values ...string) []string {
		for i := range values {
			values[i] = "injector.certificates." + values[i]
		}
		return injecting(values...)
	}
	for _, c := range []struct {
		name   string
		values []string
		want   string
	}{
		{"no image of the proxy", []string{"injector.enabled=true"},
			"injector.values.global.proxy.image: set it to the image of your proxy"},
		{"namespaces that nobody knows", injecting("injector.inject.namespaces=some"),
			"value must be one of 'labelled', 'all'"},
		{"a namespace that is none", injecting("injector.inject.excludeNamespaces={a/b}"),
			"/injector/inject/excludeNamespaces/0"},
		{"a typo", injecting("injector.injects.enabled=true"), "'injects' not allowed"},
		{"a typo further down", injecting("injector.strip.enable=true"), "'enable' not allowed"},
		{"no replica", injecting("injector.replicas=0"), "/injector/replicas"},
		{"a guard that nobody knows", injecting("injector.guard=nri"),
			"value must be one of 'validation', 'none'"},
		{"a ConfigMap without its namespace", injecting("injector.configMaps.mesh=istio"),
			"/injector/configMaps/mesh"},
		{"values of somebody else's template",
			injecting("injector.configMaps.injector=istio-system/istio-sidecar-injector"),
			"injector.config, injector.values: they would be of no use"},
		{"a text beside somebody else's", []string{"injector.enabled=true",
			"injector.configMaps.injector=istio-system/istio-sidecar-injector",
			"injector.config=policy: enabled"}, "they would be of no use"},
		{"settings of somebody else's mesh", injecting("injector.configMaps.mesh=istio-system/istio",
			"injector.mesh.defaultConfig.interceptionMode=NONE"), "injector.mesh: it would be of no use"},
		{"pods that could not start", injecting("pluginConf.redirect.ports.inbound=16006"),
			"injector.guard: validation would have no pod start"},
		{"one port for two", injecting("injector.port=9467"),
			"injector.port, injector.statusPort: both are 9467"},
		{"a mode of certificates that nobody knows", certificates("mode=vault"),
			"value must be one of 'own', 'certManager', 'files'"},
		{"an issuer without cert-manager", certificates("issuer.name=mesh"),
			"injector.certificates.issuer: it is for mode certManager, and the mode is own"},
		{"an issuer without a name", certificates("mode=certManager", "issuer.kind=Issuer"),
			"missing property 'name'"},
		{"a Secret for our own certificates", certificates("secret=tls"),
			"they are for mode files, and the mode is own"},
		{"files without a Secret", certificates("mode=files", "caBundle="+somePEM),
			"mode files needs secret"},
		{"files that nobody trusts", certificates("mode=files", "secret=tls"),
			"mode files needs secret"},
		{"an authority that is none", certificates("mode=files", "secret=tls", "caBundle=AAAA"),
			"/injector/certificates/caBundle"},
		{"the selector's label", injecting(`injector.podLabels.app\.kubernetes\.io/component=mine`),
			"/injector/podLabels"},
		{"the annotation that is there",
			injecting(`injector.podAnnotations.sidecar\.istio\.io/inject=true`),
			"/injector/podAnnotations"},
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

// TestInjectorFeatures renders each value of the injector, and looks for what it changes.
func TestInjectorFeatures(t *testing.T) {
	t.Parallel()
	plain, err := render(t, "mesh", injecting()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ value, want string }{
		{"injector.replicas=3", "replicas: 3\n"},
		{"injector.inject.namespaces=all", "- istio-system\n"},
		{"injector.strip.enabled=true", "name: strip.sidecar-cni.io"},
		{"injector.guard=none", "--guard=none"},
		{"injector.configMaps.mesh=istio-system/istio", "--mesh-config-map=istio-system/istio"},
		{"injector.config=policy: disabled", "config: 'policy: disabled'"},
		{"injector.mesh.defaultConfig.interceptionMode=NONE", "interceptionMode: NONE"},
		{"injector.values.global.proxy.readiness.port=15020", "port: 15020"},
		{"injector.certificates.mode=certManager", "--tls-cert-file=/etc/sidecar-cni-injector/tls/"},
		{"injector.logLevel=debug", "--log-level=debug"},
		{"injector.port=9999", "--listen=:9999"},
		{"injector.port=9999", "containerPort: 9999"},
		{"injector.statusPort=9999", "--status-listen=:9999"},
		{"injector.nodeSelector.zone=a", "zone: a"},
		{"injector.affinity.podAntiAffinity.a=b", "podAntiAffinity"},
		{"injector.tolerations[0].key=only", "key: only"},
		{"injector.priorityClassName=mesh", "priorityClassName: mesh"},
		{"injector.resources.requests.cpu=1", "cpu: 1\n"},
		{"injector.podAnnotations.team=mesh", "team: mesh"},
		{"injector.podLabels.team=mesh", "team: mesh"},
		{"image.pullPolicy=Never", "--validation-pull-policy=Never"},
		{"image.tag=next", "--validation-image=sidecar-cni/sidecar-cni:next"},
		{"revisionHistoryLimit=3", "revisionHistoryLimit: 3\n  selector:\n    matchLabels:\n" +
			"      app.kubernetes.io/name: sidecar-cni\n      app.kubernetes.io/component: injector"},
		{"podMonitor.enabled=true", "kind: PodMonitor\nmetadata:\n  name: sidecar-cni-injector"},
		{"serviceMonitor.enabled=true", "name: sidecar-cni-injector-metrics"},
		{"prometheusRule.enabled=true", "alert: SidecarCNIInjectorDoesNotAnswer"},
		{"platform=gke", "values: [system-node-critical, system-cluster-critical]"},
		{"platform=openshift", "- system:serviceaccount:mesh:sidecar-cni-injector-withdraw"},
		{"test.namespace=probes", "namespace: probes"},
	} {
		t.Run(c.value, func(t *testing.T) {
			t.Parallel()
			text, err := render(t, "mesh", injecting(c.value)...)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(plain, c.want) || !strings.Contains(text, c.want) {
				t.Errorf("%s: want %q, and not without", c.value, c.want)
			}
		})
	}
}

// TestNothingOfTheInjector is there by default, not even for a moment.
func TestNothingOfTheInjector(t *testing.T) {
	t.Parallel()
	for _, o := range (scenario{"", "mesh", []string{"podMonitor.enabled=true",
		"serviceMonitor.enabled=true", "prometheusRule.enabled=true", "platform=openshift"}}).
		objects(t) {
		if strings.Contains(o.GetName(), "inject") || strings.Contains(o.GetName(), "certify") ||
			o.GetKind() == "MutatingWebhookConfiguration" {
			t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
		}
	}
}

// TestInjectorArguments has the program itself read what the chart tells it.
func TestInjectorArguments(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for name, pod := range podsOf(t, s.objects(t)) {
				c := pod.Spec.Containers[0]
				if !slices.Equal(c.Command, []string{"/sidecar-cni-injector"}) {
					continue
				}
				if err := injector.accept(t, c.Args); err != nil {
					t.Errorf("%s: %v: %v", name, c.Args, err)
				}
			}
		})
	}
}

// podsOf are the pods that come of objects, by kind and name.
func podsOf(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	all := map[string]corev1.PodTemplateSpec{}
	for _, o := range objects {
		name := o.GetKind() + " " + o.GetName()
		switch o.GetKind() {
		case "Deployment":
			all[name] = as[appsv1.Deployment](t, o).Spec.Template
		case "DaemonSet":
			all[name] = as[appsv1.DaemonSet](t, o).Spec.Template
		case "Job":
			all[name] = as[batchv1.Job](t, o).Spec.Template
		case "Pod":
			pod := as[corev1.Pod](t, o)
			all[name] = corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		}
	}
	return all
}

// TestRestrictedPods holds what Pod Security restricted asks of pods. The suite on a real cluster
// has the API server check it.
func TestRestrictedPods(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for name, pod := range podsOf(t, s.objects(t)) {
				c := pod.Spec.Containers[0]
				if name == "DaemonSet sidecar-cni" {
					continue
				}
				sc, wide := c.SecurityContext, pod.Spec.SecurityContext
				for what, ok := range map[string]bool{
					"seccomp is RuntimeDefault": wide.SeccompProfile.Type ==
						corev1.SeccompProfileTypeRuntimeDefault,
					"it is not root":          *wide.RunAsNonRoot,
					"it cannot become root":   !*sc.AllowPrivilegeEscalation,
					"its files are read only": *sc.ReadOnlyRootFilesystem,
					"it has no capabilities": cmp.Equal(sc.Capabilities,
						&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}),
					"Jobs that take away, and no others, are in the host's network": pod.Spec.
						HostNetwork == slices.Contains([]string{"uninstall", "withdraw"},
						pod.Labels["app.kubernetes.io/component"]),
					"its image is ours":         strings.HasPrefix(c.Image, "sidecar-cni/sidecar-cni:"),
					"nothing of the host's":     !mountsHost(pod.Spec),
					"memory is bounded":         !c.Resources.Limits.Memory().IsZero(),
					"variables do not get in":   !*pod.Spec.EnableServiceLinks,
					"there is one container":    len(pod.Spec.Containers) == 1,
					"it is pulled as the agent": string(c.ImagePullPolicy) == "IfNotPresent",
				} {
					if !ok {
						t.Errorf("%s: not so: %s", name, what)
					}
				}
			}
		})
	}
}

func mountsHost(spec corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes,
		func(v corev1.Volume) bool { return v.HostPath != nil })
}

// TestInjectorDeployment holds what keeps the webhooks answered.
func TestInjectorDeployment(t *testing.T) {
	t.Parallel()
	objects := scenario{"", "mesh", injecting()}.objects(t)
	d := as[appsv1.Deployment](t, find(t, objects, "Deployment", "sidecar-cni-injector"))
	pod, rolling := d.Spec.Template, d.Spec.Strategy.RollingUpdate
	c := pod.Spec.Containers[0]
	var spread []string
	for _, s := range pod.Spec.TopologySpreadConstraints {
		spread = append(spread, s.TopologyKey+" "+string(s.WhenUnsatisfiable))
		if !cmp.Equal(s.LabelSelector, d.Spec.Selector) {
			t.Errorf("spread over %s: %v", s.TopologyKey, s.LabelSelector)
		}
	}
	named := map[string]int32{}
	for _, p := range c.Ports {
		named[p.Name] = p.ContainerPort
	}
	budget := as[policyv1.PodDisruptionBudget](t,
		find(t, objects, "PodDisruptionBudget", "sidecar-cni-injector")).Spec
	for what, ok := range map[string]bool{
		"there are two": *d.Spec.Replicas == 2,
		"a new one is there first": rolling.MaxSurge.IntValue() == 1 &&
			rolling.MaxUnavailable.IntValue() == 0,
		"the drain and a request end before the pod": slices.Contains(c.Args, "--drain=20s") &&
			*pod.Spec.TerminationGracePeriodSeconds > 25,
		"the labels are the selector's": labels.SelectorFromSet(d.Spec.Selector.MatchLabels).
			Matches(labels.Set(pod.Labels)),
		"it is told from agents": d.Spec.Selector.
			MatchLabels["app.kubernetes.io/component"] == "injector",
		"no injector fills it": pod.Annotations["sidecar.istio.io/inject"] == "false",
		"the image says which user it is": pod.Spec.SecurityContext.RunAsUser == nil &&
			c.SecurityContext.RunAsUser == nil,
		"ready is /readyz": c.ReadinessProbe.HTTPGet.Path == "/readyz" &&
			c.ReadinessProbe.HTTPGet.Port.StrVal == "metrics",
		"alive is /healthz": c.LivenessProbe.HTTPGet.Path == "/healthz" &&
			c.LivenessProbe.HTTPGet.Port.StrVal == "metrics",
		"the ports are those that it listens on": cmp.Equal(named,
			map[string]int32{"webhook": 9443, "metrics": 9467}),
		"it is spread": cmp.Equal(spread, []string{"kubernetes.io/hostname ScheduleAnyway",
			"topology.kubernetes.io/zone ScheduleAnyway"}),
		"it goes before what waits for it": pod.Spec.PriorityClassName == "system-cluster-critical",
		"it knows its own pod": cmp.Equal(fields(c), map[string]string{
			"SIDECAR_CNI_POD_NAME":      "metadata.name",
			"SIDECAR_CNI_POD_NAMESPACE": "metadata.namespace",
			"SIDECAR_CNI_POD_UID":       "metadata.uid"}),
		"one may go at a time": budget.MaxUnavailable.IntValue() == 1,
		"a node whose replica is sick is drained": *budget.UnhealthyPodEvictionPolicy ==
			policyv1.AlwaysAllow,
	} {
		if !ok {
			t.Errorf("%s: not so", what)
		}
	}
}

// fields are the variables that are fields of the pod.
func fields(c corev1.Container) map[string]string {
	all := map[string]string{}
	for _, v := range c.Env {
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			all[v.Name] = v.ValueFrom.FieldRef.FieldPath
		}
	}
	return all
}

// TestInjectorNetwork lets in whoever calls the webhooks, and for metrics only who is named.
func TestInjectorNetwork(t *testing.T) {
	t.Parallel()
	objects := scenario{"", "mesh",
		injecting("networkPolicy.from[0].podSelector.matchLabels.app=watch")}.objects(t)
	policy := as[networkingv1.NetworkPolicy](t,
		find(t, objects, "NetworkPolicy", "sidecar-cni-injector")).Spec
	service := as[corev1.Service](t, find(t, objects, "Service", "sidecar-cni-injector")).Spec
	open := map[string]int{}
	for _, rule := range policy.Ingress {
		open[rule.Ports[0].Port.StrVal] = len(rule.From)
	}
	if diff := cmp.Diff(map[string]int{"webhook": 0, "metrics": 1}, open); diff != "" {
		t.Errorf("who is named for each port (-want +have):\n%s", diff)
	}
	if diff := cmp.Diff(service.Selector, policy.PodSelector.MatchLabels); diff != "" {
		t.Errorf("pods (-the Service's +the policy's):\n%s", diff)
	}
	if p := service.Ports[0]; p.Port != 443 || p.TargetPort.StrVal != "webhook" {
		t.Errorf("the Service's port: %+v", p)
	}
}
