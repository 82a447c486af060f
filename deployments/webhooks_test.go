package deployments_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// webhook returns the only one of a configuration.
func (s scenario) webhook(t *testing.T, name string) admissionv1.MutatingWebhook {
	t.Helper()
	c := as[admissionv1.MutatingWebhookConfiguration](t,
		find(t, s.objects(t), "MutatingWebhookConfiguration", name))
	if len(c.Webhooks) != 1 {
		t.Fatalf("%s has %d webhooks, want 1", name, len(c.Webhooks))
	}
	return c.Webhooks[0]
}

// TestWebhooks holds both to the letter. Nobody may find caBundle in a manifest: who keeps objects
// as git has them would change it back.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	all := scenario{"", "mesh", injecting("injector.strip.enabled=true",
		"injector.inject.namespaces=all", "excludeNamespaces={edge}",
		"injector.inject.excludeNamespaces={istio-system,mesh}")}
	labelled := scenario{"", "mesh", injecting("injector.strip.enabled=true")}
	one := func(name, path string, fails admissionv1.FailurePolicyType,
		namespaces ...metav1.LabelSelectorRequirement) admissionv1.MutatingWebhook {
		return admissionv1.MutatingWebhook{
			Name: name,
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: "mesh", Name: "sidecar-cni-injector", Path: &path,
				Port: new(int32(443))}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"pods"}, Scope: new(admissionv1.NamespacedScope)}}},
			FailurePolicy:           &fails,
			MatchPolicy:             new(admissionv1.Equivalent),
			NamespaceSelector:       &metav1.LabelSelector{MatchExpressions: namespaces},
			ObjectSelector:          &metav1.LabelSelector{},
			SideEffects:             new(admissionv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(5)),
			AdmissionReviewVersions: []string{"v1"},
			ReinvocationPolicy:      new(admissionv1.IfNeededReinvocationPolicy),
		}
	}
	need := func(key string, operator metav1.LabelSelectorOperator,
		values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	inject := func(namespaces ...metav1.LabelSelectorRequirement) admissionv1.MutatingWebhook {
		w := one("inject.sidecar-cni.io", "/inject", admissionv1.Fail, namespaces...)
		w.ObjectSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			need("sidecar.istio.io/inject", metav1.LabelSelectorOpNotIn, "false")}
		// Whom the injector would leave as they are, they are not to wait for.
		w.MatchConditions = []admissionv1.MatchCondition{
			{Name: "with-a-network-of-its-own",
				Expression: "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"},
			{Name: "not-left-out-by-annotation",
				Expression: "!has(object.metadata.annotations) || " +
					"!('sidecar.istio.io/inject' in object.metadata.annotations) || " +
					"object.metadata.annotations['sidecar.istio.io/inject'] != 'false' || " +
					"has(object.metadata.labels) && " +
					"'sidecar.istio.io/inject' in object.metadata.labels"},
			{Name: "not-filled-by-others",
				Expression: "!has(object.metadata.annotations) || " +
					"!('sidecar.istio.io/status' in object.metadata.annotations) || " +
					"has(object.spec.initContainers) && object.spec.initContainers.exists(c, " +
					"c.name == 'istio-validation' && " +
					"has(c.command) && c.command.size() > 0 && " +
					"c.command[0] == '/sidecar-cni-injector')"},
		}
		return w
	}
	const name = "kubernetes.io/metadata.name"
	for _, c := range []struct {
		name  string
		of    scenario
		named string
		want  admissionv1.MutatingWebhook
	}{
		{"namespaces that are labelled", labelled, "sidecar-cni-inject", inject(
			need(name, metav1.LabelSelectorOpNotIn, "kube-system", "mesh"),
			need("istio-injection", metav1.LabelSelectorOpIn, "enabled"))},
		{"all namespaces", all, "sidecar-cni-inject", inject(
			need(name, metav1.LabelSelectorOpNotIn, "edge", "istio-system", "kube-system", "mesh"),
			need("istio-injection", metav1.LabelSelectorOpNotIn, "disabled"))},
		{"strip", all, "zzz-sidecar-cni-strip", one("strip.sidecar-cni.io", "/strip",
			admissionv1.Ignore,
			need(name, metav1.LabelSelectorOpNotIn, "edge", "kube-system", "mesh"),
			need("sidecar-cni.io/strip", metav1.LabelSelectorOpIn, "enabled"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, c.of.webhook(t, c.named)); diff != "" {
				t.Errorf("webhook (-want +have):\n%s", diff)
			}
		})
	}
}

// TestSwitches holds that each webhook is there if it is switched on, and that the injector can
// stay without one: where nothing runs hooks, webhooks are switched off first.
func TestSwitches(t *testing.T) {
	t.Parallel()
	for _, inject := range []bool{false, true} {
		for _, strip := range []bool{false, true} {
			var have []string
			for _, o := range (scenario{"", "mesh", injecting(
				fmt.Sprintf("injector.inject.enabled=%t", inject),
				fmt.Sprintf("injector.strip.enabled=%t", strip))}).objects(t) {
				if o.GetKind() == "MutatingWebhookConfiguration" || o.GetKind() == "Deployment" {
					have = append(have, o.GetName())
				}
			}
			want := []string{"sidecar-cni-injector"}
			if inject {
				want = append(want, "sidecar-cni-inject")
			}
			if strip {
				want = append(want, "zzz-sidecar-cni-strip")
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("inject %v, strip %v (-want +have):\n%s", inject, strip, diff)
			}
		}
	}
}

// TestSelectedNamespaces asks the selectors themselves.
func TestSelectedNamespaces(t *testing.T) {
	t.Parallel()
	selector := func(configuration string, values ...string) labels.Selector {
		s := scenario{"", "mesh", injecting(append(values, "injector.strip.enabled=true")...)}
		selector, err := metav1.LabelSelectorAsSelector(s.webhook(t, configuration).
			NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		return selector
	}
	labelled := selector("sidecar-cni-inject")
	all := selector("sidecar-cni-inject", "injector.inject.namespaces=all")
	strip := selector("zzz-sidecar-cni-strip")
	const enabled, strips = "istio-injection=enabled", "sidecar-cni.io/strip=enabled"
	for _, c := range []struct {
		namespace, label     string
		labelled, all, strip bool
	}{
		{"shop", "", false, true, false},
		{"shop", enabled, true, true, false},
		{"shop", "istio-injection=disabled", false, false, false},
		{"shop", "istio-injection=yes", false, true, false},
		{"shop", strips, false, true, true},
		{"shop", "sidecar-cni.io/strip=disabled", false, true, false},
		{"istio-system", "", false, false, false},
		{"istio-system", strips, false, false, true},
		{"kube-system", enabled, false, false, false},
		{"kube-system", strips, false, false, false},
		{"mesh", enabled, false, false, false},
		{"mesh", strips, false, false, false},
	} {
		set := labels.Set{"kubernetes.io/metadata.name": c.namespace}
		if key, value, ok := strings.Cut(c.label, "="); ok {
			set[key] = value
		}
		have := []bool{labelled.Matches(set), all.Matches(set), strip.Matches(set)}
		if want := []bool{c.labelled, c.all, c.strip}; !slices.Equal(want, have) {
			t.Errorf("%s %s: labelled, all, strip: %v, want %v", c.namespace, c.label, have, want)
		}
	}
}

// TestHooks holds who runs when, and that no right stays.
func TestHooks(t *testing.T) {
	t.Parallel()
	const around = "pre-install,pre-upgrade,pre-rollback,post-install,post-upgrade,post-rollback"
	want := map[string]string{
		"ServiceAccount sidecar-cni-certify":               around + " -10",
		"Role sidecar-cni-certify":                         around + " -10",
		"RoleBinding sidecar-cni-certify":                  around + " -10",
		"ClusterRole sidecar-cni-certify":                  around + " -10",
		"ClusterRoleBinding sidecar-cni-certify":           around + " -10",
		"Job sidecar-cni-certify":                          around + " -9",
		"ServiceAccount sidecar-cni-injector-withdraw":     "pre-delete -20",
		"ClusterRole sidecar-cni-injector-withdraw":        "pre-delete -20",
		"ClusterRoleBinding sidecar-cni-injector-withdraw": "pre-delete -20",
		"Job sidecar-cni-injector-withdraw":                "pre-delete -19",
		"RoleBinding sidecar-cni-uninstall":                "pre-delete 0",
		"Job sidecar-cni-uninstall":                        "pre-delete 1",
		"Pod sidecar-cni-test":                             "test ",
	}
	have := map[string]string{}
	for _, o := range (scenario{"", "mesh", injecting()}).objects(t) {
		name, notes := o.GetKind()+" "+o.GetName(), o.GetAnnotations()
		if events := notes["helm.sh/hook"]; events != "" {
			have[name] = events + " " + notes["helm.sh/hook-weight"]
		} else if strings.Contains(name, "certify") || strings.Contains(name, "withdraw") {
			t.Errorf("%s is there always", name)
		}
		policy := notes["helm.sh/hook-delete-policy"]
		if _, ok := have[name]; ok && name != "RoleBinding sidecar-cni-uninstall" &&
			policy != "before-hook-creation,hook-succeeded" {
			t.Errorf("%s stays: %q", name, policy)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("hooks (-want +have):\n%s", diff)
	}
}

// TestCertificates holds what each mode brings, and that only files put caBundle into a manifest.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		values []string
		secret string // that is mounted
		bundle string
		source string // an annotation of the webhook configurations
		issued int    // Certificates of cert-manager
		job    bool   // certify is there
	}{
		"own": {nil, "", "", "", 0, true},
		"certManager": {[]string{"injector.certificates.mode=certManager"},
			"sidecar-cni-injector-tls", "", "mesh/sidecar-cni-injector", 2, false},
		"certManager with an issuer": {[]string{"injector.certificates.mode=certManager",
			"injector.certificates.issuer.name=mesh"}, "sidecar-cni-injector-tls", "",
			"mesh/sidecar-cni-injector", 1, false},
		"files": {[]string{"injector.certificates.mode=files", "injector.certificates.secret=mine",
			"injector.certificates.caBundle=" + somePEM}, "mine", somePEM, "", 0, false},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			objects := scenario{"", "mesh", injecting(append(c.values,
				"injector.strip.enabled=true")...)}.objects(t)
			issued, job := 0, false
			for _, o := range objects {
				switch {
				case o.GetKind() == "MutatingWebhookConfiguration":
					w := as[admissionv1.MutatingWebhookConfiguration](t, o)
					bundle := string(w.Webhooks[0].ClientConfig.CABundle)
					source := w.Annotations["cert-manager.io/inject-ca-from"]
					if bundle != c.bundle || source != c.source {
						t.Errorf("%s: caBundle %q, %q", o.GetName(), bundle, source)
					}
				case o.GetKind() == "Certificate":
					issued++
				case o.GetName() == "sidecar-cni-certify":
					job = true
				}
			}
			if issued != c.issued || job != c.job {
				t.Errorf("%d Certificates, want %d; certify %v, want %v", issued, c.issued, job,
					c.job)
			}
			expectCertificate(t, podsOf(t, objects)["Deployment sidecar-cni-injector"].Spec,
				c.secret)
		})
	}
}

// expectCertificate: from a Secret that is mounted, or by an authority that is read.
func expectCertificate(t *testing.T, pod corev1.PodSpec, secret string) {
	t.Helper()
	want := []string{"--ca-secret=mesh/sidecar-cni-injector-ca",
		"--dns-names=sidecar-cni-injector.mesh.svc"}
	var mounted string
	if secret != "" {
		dir := pod.Containers[0].VolumeMounts[0].MountPath
		want = []string{"--tls-cert-file=" + dir + "/tls.crt", "--tls-key-file=" + dir + "/tls.key",
			"--dns-names=sidecar-cni-injector.mesh.svc"}
		mounted = pod.Volumes[0].Secret.SecretName
	}
	var have []string
	for _, arg := range pod.Containers[0].Args {
		if strings.HasPrefix(arg, "--ca-") || strings.HasPrefix(arg, "--dns-") ||
			strings.HasPrefix(arg, "--tls-") {
			have = append(have, arg)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" || mounted != secret || (secret == "") !=
		(len(pod.Volumes) == 0) {
		t.Errorf("Secret %q, want %q; arguments (-want +have):\n%s", mounted, secret, diff)
	}
}

// TestInjectorRights holds that each thing that may be read is named, and in its namespace.
func TestInjectorRights(t *testing.T) {
	t.Parallel()
	const configs = "get,list,watch configmaps "
	const secret, events = "get,list,watch secrets sidecar-cni-injector-ca", "create,patch events "
	for name, c := range map[string]struct {
		values []string
		want   map[string][]string
	}{
		"the chart's own": {injecting(),
			map[string][]string{"mesh": {configs + "sidecar-cni-injector", secret, events}}},
		"a control plane's": {[]string{"injector.enabled=true",
			"injector.configMaps.injector=istio-system/istio-sidecar-injector",
			"injector.configMaps.mesh=istio-system/istio"}, map[string][]string{
			"istio-system": {configs + "istio-sidecar-injector,istio"}, "mesh": {secret, events}}},
		"a control plane's injector": {[]string{"injector.enabled=true",
			"injector.configMaps.injector=istio-system/istio-sidecar-injector"},
			map[string][]string{"istio-system": {configs + "istio-sidecar-injector"},
				"mesh": {configs + "sidecar-cni-injector", secret, events}}},
		"cert-manager": {injecting("injector.certificates.mode=certManager"),
			map[string][]string{"mesh": {configs + "sidecar-cni-injector", events}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have, bound := map[string][]string{}, map[string]bool{}
			for _, o := range (scenario{"", "mesh", c.values}).objects(t) {
				switch o.GetKind() + " " + o.GetName() {
				case "Role sidecar-cni-injector":
					have[o.GetNamespace()] = rulesOf(t, o)
				case "RoleBinding sidecar-cni-injector":
					b := as[rbacv1.RoleBinding](t, o)
					bound[o.GetNamespace()] = b.RoleRef.Name == "sidecar-cni-injector" &&
						b.Subjects[0].Name == "sidecar-cni-injector" &&
						b.Subjects[0].Namespace == "mesh"
				case "ClusterRole sidecar-cni-injector":
					t.Error("there is a ClusterRole")
				}
			}
			if diff := cmp.Diff(c.want, have); diff != "" {
				t.Errorf("rights by namespace (-want +have):\n%s", diff)
			}
			for namespace := range c.want {
				if !bound[namespace] {
					t.Errorf("namespace %s: the account is not bound", namespace)
				}
			}
		})
	}
}

// rulesOf are verbs, resources and names of a role's rules.
func rulesOf(t *testing.T, o *unstructured.Unstructured) (all []string) {
	t.Helper()
	for _, r := range as[rbacv1.ClusterRole](t, o).Rules {
		all = append(all, strings.Join(r.Verbs, ",")+" "+strings.Join(r.Resources, ",")+" "+
			strings.Join(r.ResourceNames, ","))
	}
	return all
}

// TestRightsOfHooks holds that the Jobs may do what they are for, to what they are for.
func TestRightsOfHooks(t *testing.T) {
	t.Parallel()
	const webhooks = "mutatingwebhookconfigurations sidecar-cni-inject,zzz-sidecar-cni-strip"
	want := map[string][]string{
		"Role sidecar-cni-certify": {"create secrets ",
			"get,update secrets sidecar-cni-injector-ca"},
		"ClusterRole sidecar-cni-certify":           {"get,patch " + webhooks},
		"ClusterRole sidecar-cni-injector-withdraw": {"delete " + webhooks},
	}
	objects := scenario{"", "mesh", injecting()}.objects(t)
	for role, rules := range want {
		kind, name, _ := strings.Cut(role, " ")
		if diff := cmp.Diff(rules, rulesOf(t, find(t, objects, kind, name))); diff != "" {
			t.Errorf("%s (-want +have):\n%s", role, diff)
		}
		b := as[rbacv1.ClusterRoleBinding](t, find(t, objects, kind+"Binding", name))
		account := []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "mesh"}}
		if diff := cmp.Diff(account, b.Subjects); diff != "" || b.RoleRef.Name != name ||
			b.RoleRef.Kind != kind {
			t.Errorf("%s is bound as %+v (-want +have):\n%s", role, b.RoleRef, diff)
		}
		job := podsOf(t, objects)["Job "+name].Spec
		if job.ServiceAccountName != name {
			t.Errorf("the Job %s has the account %s", name, job.ServiceAccountName)
		}
	}
}

// TestConfigurationLoads reads the chart's own ConfigMap as the injector does.
func TestConfigurationLoads(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"as delivered": nil,
		"changed": {"injector.mesh.defaultConfig.interceptionMode=NONE",
			"injector.values.global.proxy.env[0].name=LEVEL",
			"injector.values.global.proxy.env[0].value=debug"},
		"another template": {"injector.config=policy: enabled\ntemplate: |\n  metadata: {}\n"},
		"another port, which the template names": {"pluginConf.redirect.ports.inbound=16006",
			"injector.config=policy: enabled\ntemplate: |\n  metadata: {}\n"},
		"another port, which nobody tries": {"pluginConf.redirect.ports.inbound=16006",
			"injector.guard=none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := scenario{"", "mesh", injecting(values...)}.objects(t)
			data, err := yaml.Marshal(find(t, objects, "ConfigMap", "sidecar-cni-injector").Object)
			if err != nil {
				t.Fatal(err)
			}
			source := config.Source{Name: "ConfigMap mesh/sidecar-cni-injector", Data: data}
			c, err := config.Load(config.Sources{Injector: source, Mesh: source, Values: source})
			if err != nil || len(c.Warnings) > 0 {
				t.Errorf("%v, warnings %v", err, c)
			}
		})
	}
}

// TestRequiredAnnotation holds that the chart's policy about pods with a sidecar does not refuse
// those that the chart's injector fills.
func TestRequiredAnnotation(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]map[string]string{
		"guard.requiredPlugin=false": nil,
		"guard.requiredPlugin=true":  {"required-plugins.noderesource.dev/pod": `["sidecar-cni"]`},
		"platform=openshift":         {"k8s.v1.cni.cncf.io/networks": "default/istio-cni"},
	} {
		objects := scenario{"", "mesh", injecting(value)}.objects(t)
		data, err := yaml.Marshal(find(t, objects, "ConfigMap", "sidecar-cni-injector").Object)
		if err != nil {
			t.Fatal(err)
		}
		source := config.Source{Name: "ConfigMap mesh/sidecar-cni-injector", Data: data}
		c, err := config.Load(config.Sources{Injector: source, Mesh: source, Values: source})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.InjectedAnnotations); diff != "" {
			t.Errorf("%s: annotations of each pod that is injected (-want +have):\n%s", value, diff)
		}
	}
}

// TestTestPod holds that the plugin redirects the pod of `helm test`, wherever it may be.
func TestTestPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		namespace string // of the release
		values    []string
		there     bool
		inbound   uint16
		uid       uint32
	}{
		"by default":           {"kube-system", nil, true, 15006, 1337},
		"the guard's required": {"mesh", []string{"guard.requiredPlugin=true"}, true, 15006, 1337},
		"through Multus":       {"mesh", []string{"platform=openshift"}, true, 15006, 1337},
		"another port": {"mesh", []string{"pluginConf.redirect.ports.inbound=16006"}, true, 16006,
			1337},
		"another user": {"mesh", []string{"pluginConf.redirect.proxy.uids={2000}"}, true, 15006,
			2000},
		"another namespace":      {"mesh", []string{"test.namespace=probes"}, true, 15006, 1337},
		"an excluded namespace":  {"mesh", []string{"excludeNamespaces={default}"}, false, 0, 0},
		"the release's own":      {"default", nil, false, 0, 0},
		"another, in that case":  {"default", []string{"test.namespace=x"}, true, 15006, 1337},
		"nobody's own namespace": {"mesh", []string{"test.namespace=kube-system"}, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := scenario{"", c.namespace, c.values}.objects(t)
			i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "Pod"
			})
			if (i >= 0) != c.there {
				t.Fatalf("the pod is there: %v, want %v", i >= 0, c.there)
			}
			if !c.there {
				return
			}
			data, err := objects[i].MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			pod, err := kubepod.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			cfg := redirect.Defaults()
			cfg.ExcludeNamespaces = append(cfg.ExcludeNamespaces, c.namespace)
			decision, err := redirect.Decide(pod.Facts(), cfg)
			if err != nil || decision.Skip != "" || decision.AskMore {
				t.Errorf("%v, %+v, want it redirected", err, decision)
			}
			container := as[corev1.Pod](t, objects[i]).Spec.Containers[0]
			want := []string{"validate", "--inbound-port=" + strconv.Itoa(int(c.inbound))}
			if diff := cmp.Diff(want, container.Args); diff != "" ||
				*container.SecurityContext.RunAsUser != int64(c.uid) {
				t.Errorf("user %d, arguments (-want +have):\n%s",
					*container.SecurityContext.RunAsUser, diff)
			}
			required := pod.Metadata.Annotations["required-plugins.noderesource.dev/pod"]
			if (required == `["sidecar-cni"]`) != (name == "the guard's required") {
				t.Errorf("it requires %q", required)
			}
			network := pod.Metadata.Annotations["k8s.v1.cni.cncf.io/networks"]
			if (network == "default/istio-cni") != (name == "through Multus") {
				t.Errorf("it asks for the network %q", network)
			}
		})
	}
}

// TestInjectorNotes tells what to do next.
func TestInjectorNotes(t *testing.T) {
	t.Parallel()
	const label = "kubectl label namespace NAMESPACE "
	for name, c := range map[string]struct {
		values       []string
		want, absent []string
	}{
		"without it": {nil, []string{"helm test sidecar-cni -n mesh", "pilot.cni.enabled"},
			[]string{label}},
		"labelled": {injecting(), []string{label + "istio-injection=enabled",
			"kubectl get namespace -L istio-injection"}, []string{"pilot.cni.enabled", "=disabled"}},
		"all": {injecting("injector.inject.namespaces=all"), []string{label +
			"istio-injection=disabled", "all namespaces but istio-system, kube-system, mesh,"},
			[]string{"=enabled"}},
		"strip": {injecting("injector.strip.enabled=true"),
			[]string{label + "sidecar-cni.io/strip=enabled"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			notes := notesOf(t, "mesh", c.values...)
			for _, want := range c.want {
				if !strings.Contains(notes, want) {
					t.Errorf("want %q:\n%s", want, notes)
				}
			}
			for _, absent := range c.absent {
				if strings.Contains(notes, absent) {
					t.Errorf("do not want %q:\n%s", absent, notes)
				}
			}
		})
	}
}
