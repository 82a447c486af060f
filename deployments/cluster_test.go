//go:build e2e

package deployments_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// definitions are those of objects that are not Kubernetes' own, as their projects publish them.
var definitions = []struct {
	module string
	files  []string
}{
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", []string{
		"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
	}},
	{"github.com/k8snetworkplumbingwg/network-attachment-definition-client@v1.7.7",
		[]string{"artifacts/networks-crd.yaml"}},
	{"github.com/cert-manager/cert-manager@v1.19.1", []string{
		"deploy/crds/cert-manager.io_certificates.yaml",
		"deploy/crds/cert-manager.io_issuers.yaml",
	}},
	{"github.com/openshift/api@v0.0.0-20260420151639-34e60874783e", []string{
		"payload-manifests/crds/0000_03_config-operator_01_securitycontextconstraints.crd.yaml",
	}},
}

// mesh is a namespace for the chart, labelled as its notes ask for.
const mesh = `
apiVersion: v1
kind: Namespace
metadata:
  name: mesh
  labels: {pod-security.kubernetes.io/enforce: privileged}
---
apiVersion: v1
kind: Namespace
metadata:
  name: baseline
  labels: {pod-security.kubernetes.io/enforce: baseline}
---
apiVersion: v1
kind: Namespace
metadata:
  name: istio-system
---
apiVersion: v1
kind: Namespace
metadata:
  name: probes
---
apiVersion: v1
kind: Namespace
metadata:
  name: restricted
  labels: {pod-security.kubernetes.io/enforce: restricted}
`

// start starts a cluster that knows all kinds.
func start(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c := cluster.Start(t, o)
	for _, d := range definitions {
		cmd := command("go", "mod", "download", "-json", d.module)
		cmd.Dir = t.TempDir()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(told(err), string(out))
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			t.Fatal(err)
		}
		for _, file := range d.files {
			data, err := os.ReadFile(filepath.Join(module.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			c.Apply(t, string(data))
		}
	}
	c.Apply(t, mesh)
	return c
}

// helmIn runs Helm beside the control plane, and returns all that it says.
func helmIn(t *testing.T, c *cluster.Cluster, args ...string) (string, error) {
	t.Helper()
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return c.Try("", "env", append([]string{"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home,
		"HELM_DATA_HOME=" + home,
		"sh", "-c", `"$0" "$@" 2>&1`, path, "--kubeconfig=" + c.Kubeconfig()}, args...)...)
}

// chart is the chart's folder, for programs that are started elsewhere.
func chart(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("chart")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// install installs the chart for good.
func install(t *testing.T, c *cluster.Cluster, values ...string) {
	t.Helper()
	args := []string{"install", "sidecar-cni", chart(t), "--namespace=mesh", someImage}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	if out, err := helmIn(t, c, args...); err != nil {
		t.Fatal(out, err)
	}
}

// TestControlPlane asks a real control plane without nodes.
func TestControlPlane(t *testing.T) {
	c := start(t, cluster.Options{})
	t.Run("every object of every scenario is accepted", func(t *testing.T) { accepted(t, c) })
	t.Run("plain manifests", func(t *testing.T) { plainManifests(t, c) })
	// Before the install: its policies refuse some of these pods, too, once they are in force.
	t.Run("Pod Security", func(t *testing.T) { podSecurity(t, c) })
	t.Run("kubectl's plugin", func(t *testing.T) { asPlugin(t, c) })
	makeInjected(t, c, "old", map[string]string{status: "{}"})
	makeInjected(t, c, "held", map[string]string{status: "{}"}, "example.com/held")
	makeInjected(t, c, "crowded", crowd())
	install(t, c, "repair.mode=evict", "labelPods=true", "untaint=true", "nodeCondition=true",
		"guard.requiredPlugin=true")
	t.Run("rights", func(t *testing.T) { reviews(t, c) })
	t.Run("the injector's rights", func(t *testing.T) { injectorReviews(t, c) })
	t.Run("what is switched off", func(t *testing.T) { switchedOff(t, c) })
	t.Run("policies", func(t *testing.T) { policed(t, c) })
	t.Run("pods that require the guard", func(t *testing.T) { requiring(t, c) })
	t.Run("pods that change", func(t *testing.T) { changing(t, c) })
	t.Run("an uninstallation that nobody can carry out", func(t *testing.T) { half(t, c) })
}

func accepted(t *testing.T, c *cluster.Cluster) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			text, err := render(t, s.namespace, s.values...)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := c.TryKubectl(text, "apply", "--server-side", "--dry-run=server",
				"--validate=strict", "-f", "-"); err != nil {
				t.Errorf("%s\n%v", out, err)
			}
		})
	}
}

// asPlugin has kubectl find sidecarctl by its name, start it, and complete its words.
func asPlugin(t *testing.T, c *cluster.Cluster) {
	folder := filepath.Dir(cluster.Program(t, "../sidecarctl"))
	script, err := os.ReadFile("release/kubectl_complete-sidecar_cni")
	err = errors.Join(err,
		os.Rename(filepath.Join(folder, "sidecarctl"), filepath.Join(folder, "kubectl-sidecar_cni")),
		os.WriteFile(filepath.Join(folder, "kubectl_complete-sidecar_cni"), script, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	makeInjected(t, c, "asked", map[string]string{status: "{}"})
	for line, want := range map[string]string{
		"sidecar-cni trace --help":                   "kubectl sidecar-cni trace [TARGET]",
		"__complete sidecar-cni explain --output ":   "yaml",
		"sidecar-cni explain default/asked -o json":  `"reason": "no_proxy"`,
		"sidecar-cni explain default/nobody -o json": `there is no Pod "nobody"`,
	} {
		out, _ := c.Try("", "sh", append([]string{"-c",
			`PATH=$0:$PATH KUBECONFIG=$1; export PATH KUBECONFIG; shift; kubectl "$@" 2>&1`,
			folder, c.Kubeconfig()}, strings.Split(line, " ")...)...)
		if !strings.Contains(out, want) {
			t.Errorf("kubectl %s: want %q:\n%s", line, want, out)
		}
	}
}

func plainManifests(t *testing.T, c *cluster.Cluster) {
	folder, err := filepath.Abs("manifests")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-f", folder + "/sidecar-cni.yaml"},
		{"-f", folder + "/uninstall.yaml"}, {"-k", folder}} {
		out, err := c.TryKubectl("",
			append([]string{"apply", "--dry-run=server", "--validate=strict"}, args...)...)
		if err != nil {
			t.Errorf("kubectl apply %v: %s\n%v", args, out, err)
		}
	}
}

// podSecurity creates what the DaemonSet and the Job would, in namespaces of each level.
func podSecurity(t *testing.T, c *cluster.Cluster) {
	objects := scenario{"", "mesh", injecting()}.objects(t)
	d := as[appsv1.DaemonSet](t, find(t, objects, "DaemonSet", "sidecar-cni"))
	j := as[batchv1.Job](t, find(t, objects, "Job", "sidecar-cni-uninstall"))
	pods := podsOf(t, objects)
	for _, x := range []struct {
		name, namespace string
		template        corev1.PodTemplateSpec
		refused         string
	}{
		{"the agent where the notes' label is", "mesh", d.Spec.Template, ""},
		{"the agent under baseline", "baseline", d.Spec.Template, `violates PodSecurity "baseline`},
		{"the agent in kube-system", "kube-system", d.Spec.Template, ""},
		{"uninstall's Job where the notes' label is", "mesh", j.Spec.Template, ""},
		{"uninstall's Job under restricted", "restricted", j.Spec.Template,
			"host namespaces (hostNetwork=true)"},
		{"the injector under restricted", "restricted", pods["Deployment sidecar-cni-injector"], ""},
		{"certify's Job under restricted", "restricted", pods["Job sidecar-cni-certify"], ""},
		{"withdraw's Job where the notes' label is", "mesh",
			pods["Job sidecar-cni-injector-withdraw"], ""},
		{"the test's pod under restricted", "restricted", pods["Pod sidecar-cni-test"], ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: x.template.ObjectMeta, Spec: x.template.Spec}
			pod.Name, pod.Namespace, pod.GenerateName = "", "", "try-"
			pod.Spec.ServiceAccountName = "default"
			made, err := c.Client().CoreV1().Pods(x.namespace).Create(t.Context(), pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case x.refused == "" && err != nil,
				x.refused != "" && (err == nil || !strings.Contains(err.Error(), x.refused)):
				t.Errorf("%v, want %q", err, x.refused)
			case err == nil && x.template.Labels["app.kubernetes.io/component"] == "uninstall":
				for _, toleration := range made.Spec.Tolerations {
					if toleration.Effect == corev1.TaintEffectNoExecute &&
						toleration.Operator == corev1.TolerationOpExists {
						t.Errorf("the Job's pod would go to nodes that are down: %+v", toleration)
					}
				}
			}
		})
	}
}

// An ask is a question of whether somebody may do something.
type ask struct{ verb, resource, namespace, name string }

func (a ask) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", a.verb, a.resource, a.namespace, a.name))
}

// may asks a real API server.
func may(t *testing.T, c *cluster.Cluster, account string, a ask) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(a.resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:mesh:" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:mesh",
			"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.verb, Group: group, Resource: resource, Subresource: sub,
			Namespace: a.namespace, Name: a.name,
		},
	}}
	answer, err := c.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

// reviews asks about every verb of every resource that the server has.
func reviews(t *testing.T, c *cluster.Cluster) {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete",
		"deletecollection", "impersonate", "bind", "escalate", "approve"}
	for _, account := range []string{"sidecar-cni", "sidecar-cni-plugin"} {
		t.Run(account, func(t *testing.T) {
			have := []string{}
			for _, resource := range resources(t, c) {
				for _, verb := range verbs {
					a := ask{verb: verb, resource: resource, namespace: "default"}
					if may(t, c, account, a) && !may(t, c, "default", a) {
						have = append(have, verb+" "+resource)
					}
				}
			}
			want := slices.DeleteFunc(documented(t, account),
				func(right string) bool { return right == "create serviceaccounts/token" })
			if diff := cmp.Diff(want, slices.Sorted(slices.Values(have))); diff != "" {
				t.Errorf("rights (-as docs/security.md says +have):\n%s", diff)
			}
		})
	}
	for a, want := range map[ask]bool{
		{"create", "serviceaccounts/token", "mesh", "sidecar-cni-plugin"}:    true,
		{"create", "serviceaccounts/token", "mesh", "sidecar-cni"}:           false,
		{"create", "serviceaccounts/token", "default", "sidecar-cni-plugin"}: false,
		{"get", "secrets", "mesh", ""}:                                       false,
		{"patch", "daemonsets.apps", "mesh", "sidecar-cni"}:                  false,
		{"update", "pods/ephemeralcontainers", "default", "web"}:             false,
	} {
		if have := may(t, c, "sidecar-cni", a); have != want {
			t.Errorf("the agent: %s: %v, want %v", a, have, want)
		}
	}
}

// resources lists those that the server has, with their subresources.
func resources(t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	_, lists, err := c.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		group := ""
		if name, _, ok := strings.Cut(list.GroupVersion, "/"); ok {
			group = "." + name
		}
		for _, r := range list.APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			all = append(all, strings.TrimSuffix(resource+group+"/"+sub, "/"))
		}
	}
	if len(all) < 100 {
		t.Fatalf("the server has %d resources only", len(all))
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// policed tries what RBAC allows, with a token like the one that the kubelet gives the agent of
// node-a.
func policed(t *testing.T, c *cluster.Cluster) {
	for _, name := range []string{"node-a", "node-b"} {
		makeNode(t, c, name)
		makePod(t, c, "default", "web-"+name, name)
	}
	agentPod := makePod(t, c, "mesh", "agent-node-a", "node-a")
	bound := agentClient(t, c,
		&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: agentPod.Name,
			UID: agentPod.UID})
	unbound := agentClient(t, c, nil)
	taint := `[{"op":"test","path":"/spec/taints/0/key","value":"sidecar-cni.io/not-ready"},{"op":"remove","path":"/spec/taints/0"}]`
	condition := `{"status":{"conditions":[{"type":"SidecarCNIReady","status":"True"}]}}`
	c.Await(t, "the policies to be in force", func(ctx context.Context) error {
		_, err := bound.CoreV1().Nodes().Patch(ctx, "node-b", types.JSONPatchType, []byte(taint),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		_, other := bound.CoreV1().Nodes().PatchStatus(ctx, "node-b", []byte(condition))
		_, label := bound.CoreV1().Pods("default").Patch(ctx, "web-node-b", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"sidecar-cni.io/redirection":"missing"}}}`),
			metav1.PatchOptions{})
		if err == nil || other == nil || label == nil {
			return errors.New("another node may be changed")
		}
		return nil
	})
	c.Await(t, "the policies' types to be checked", func(ctx context.Context) error {
		all, err := c.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sidecar-cni"})
		if err != nil {
			return err
		}
		for _, p := range all.Items {
			if p.Status.TypeChecking == nil || len(p.Status.TypeChecking.ExpressionWarnings) > 0 {
				return fmt.Errorf("%s: %+v", p.Name, p.Status.TypeChecking)
			}
		}
		return nil
	})
	for _, x := range []struct {
		name    string
		client  kubernetes.Interface
		object  string
		kind    types.PatchType
		patch   string
		refused string
	}{
		{"our taint of the own node", bound, "node node-a", types.JSONPatchType, taint, ""},
		{"our taint of another node", bound, "node node-b", types.JSONPatchType, taint,
			"only change its own node"},
		{"our taint with a token of no node", unbound, "node node-b", types.JSONPatchType, taint,
			"only change its own node"},
		{"another taint", bound, "node node-a", types.JSONPatchType,
			removal(t, c, "example.com/busy"), "only take away the taint"},
		{"a taint is added", bound, "node node-a", types.JSONPatchType,
			`[{"op":"add","path":"/spec/taints/-","value":{"key":"x","effect":"NoSchedule"}}]`,
			"only take away the taint"},
		{"our taint is added", bound, "node node-a", types.JSONPatchType,
			`[{"op":"add","path":"/spec/taints/-","value":{"key":"sidecar-cni.io/not-ready","effect":"NoExecute"}}]`, "only take away the taint"},
		{"a label", bound, "node node-a", types.MergePatchType, `{"metadata":{"labels":{"x":"y"}}}`,
			"not change a node's metadata"},
		{"a label is taken away", bound, "node node-a", types.MergePatchType,
			`{"metadata":{"labels":{"kept":null}}}`, "not change a node's metadata"},
		{"an annotation", bound, "node node-a", types.MergePatchType,
			`{"metadata":{"annotations":{"x":"y"}}}`, "not change a node's metadata"},
		{"a finalizer", bound, "node node-a", types.MergePatchType,
			`{"metadata":{"finalizers":["x/y"]}}`, "not change a node's metadata"},
		{"cordoning", bound, "node node-a", types.MergePatchType, `{"spec":{"unschedulable":true}}`,
			"only change the taints"},
		{"our condition of the own node", bound, "status node-a", types.StrategicMergePatchType,
			condition, ""},
		{"our condition changes", bound, "status node-a", types.StrategicMergePatchType,
			strings.Replace(condition, "True", "False", 1), ""},
		{"our condition of another node", bound, "status node-b", types.StrategicMergePatchType,
			condition, "only change its own node"},
		{"another condition", bound, "status node-a", types.StrategicMergePatchType,
			strings.Replace(condition, "SidecarCNIReady", "Ready", 1), "only report the condition"},
		{"a capacity", bound, "status node-a", types.MergePatchType,
			`{"status":{"capacity":{"example.com/gpu":"8"}}}`, "only change the conditions"},
		{"an address", bound, "status node-a", types.MergePatchType,
			`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`,
			"only change the conditions"},
		{"a label by way of the status", bound, "status node-a", types.MergePatchType,
			`{"metadata":{"labels":{"x":"y"}}}`, "not change a node's metadata"},
		{"our label of an own pod", bound, "pod web-node-a", types.MergePatchType,
			`{"metadata":{"labels":{"sidecar-cni.io/redirection":"missing"}}}`, ""},
		{"our label with another value", bound, "pod web-node-a", types.MergePatchType,
			`{"metadata":{"labels":{"sidecar-cni.io/redirection":"fine"}}}`, "only set the label"},
		{"another label of an own pod", bound, "pod web-node-a", types.MergePatchType,
			`{"metadata":{"labels":{"app":"other"}}}`, "only set the label"},
		{"another label is taken away", bound, "pod web-node-a", types.MergePatchType,
			`{"metadata":{"labels":{"app":null}}}`, "only set the label"},
		{"an annotation of an own pod", bound, "pod web-node-a", types.MergePatchType,
			`{"metadata":{"annotations":{"x":"y"}}}`, "only change the labels"},
		{"an image of an own pod", bound, "pod web-node-a", types.StrategicMergePatchType,
			`{"spec":{"containers":[{"name":"web","image":"evil"}]}}`, "not change a pod's spec"},
		{"our label is taken away", bound, "pod web-node-a", types.MergePatchType,
			`{"metadata":{"labels":{"sidecar-cni.io/redirection":null}}}`, ""},
		{"our label of another node's pod", bound, "pod web-node-b", types.MergePatchType,
			`{"metadata":{"labels":{"sidecar-cni.io/redirection":"missing"}}}`,
			"only label pods of its own node"},
		{"an administrator's label", c.Client(), "node node-a", types.MergePatchType,
			`{"metadata":{"labels":{"x":"y"}}}`, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := patch(t, x.client, x.object, x.kind, x.patch)
			if x.refused == "" && err != nil ||
				x.refused != "" && (!apierrors.IsInvalid(err) ||
					!strings.Contains(err.Error(), x.refused)) {
				t.Errorf("%s: %v, want %q", x.patch, err, x.refused)
			}
		})
	}
}

func patch(t *testing.T, client kubernetes.Interface, object string, kind types.PatchType,
	patch string) error {
	t.Helper()
	what, name, _ := strings.Cut(object, " ")
	var err error
	switch what {
	case "node":
		_, err = client.CoreV1().Nodes().Patch(t.Context(), name, kind, []byte(patch),
			metav1.PatchOptions{})
	case "status":
		_, err = client.CoreV1().Nodes().Patch(t.Context(), name, kind, []byte(patch),
			metav1.PatchOptions{}, "status")
	case "pod":
		_, err = client.CoreV1().Pods("default").Patch(t.Context(), name, kind, []byte(patch),
			metav1.PatchOptions{})
	}
	return err
}

// removal is a patch that takes a taint away from node-a, wherever it is.
func removal(t *testing.T, c *cluster.Cluster, key string) string {
	t.Helper()
	n, err := c.Client().CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Without the first: by then ours is away.
	i := slices.IndexFunc(n.Spec.Taints[1:], func(x corev1.Taint) bool { return x.Key == key })
	return fmt.Sprintf(`[{"op":"test","path":"/spec/taints/%[1]d/key","value":%[2]q},{"op":"remove","path":"/spec/taints/%[1]d"}]`, i, key)
}

func makeNode(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kept": "yes"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "sidecar-cni.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
			{Key: "example.com/busy", Effect: corev1.TaintEffectNoSchedule},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func makePod(t *testing.T, c *cluster.Cluster, namespace, name, node string) *corev1.Pod {
	t.Helper()
	account := "default"
	if namespace == "mesh" {
		account = "sidecar-cni"
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account,
			Containers:  []corev1.Container{{Name: "web", Image: "web"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	c.Await(t, "pod "+name, func(ctx context.Context) (err error) {
		pod, err = c.Client().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return pod
}

// agentClient is the agent's client, with a token that is bound to a pod, and so to a node.
func agentClient(t *testing.T, c *cluster.Cluster,
	to *authenticationv1.BoundObjectReference) kubernetes.Interface {
	t.Helper()
	answer, err := c.Client().CoreV1().ServiceAccounts("mesh").CreateToken(t.Context(),
		"sidecar-cni",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: to}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.Dial, config.BearerToken = c.Config().Dial, answer.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// half uninstalls where no node can run the Job: Helm gives up, says so, and can be told to go on.
func half(t *testing.T, c *cluster.Cluster) {
	out, err := helmIn(t, c, "upgrade", "sidecar-cni", chart(t), "--namespace=mesh",
		"--reuse-values", "--set=uninstall.timeout=1s")
	if err != nil {
		t.Fatal(out, err)
	}
	out, err = helmIn(t, c, "uninstall", "sidecar-cni", "--namespace=mesh", "--timeout=5s")
	if err == nil || !strings.Contains(out, "sidecar-cni-uninstall") {
		t.Errorf("%s %v: want that it names the Job", out, err)
	}
	if _, err := c.TryKubectl("", "--namespace=mesh", "get", "daemonset/sidecar-cni"); err != nil {
		t.Errorf("nothing may be deleted before nodes are out: %v", err)
	}
	if out, err := helmIn(t, c, "uninstall", "sidecar-cni", "--namespace=mesh",
		"--no-hooks"); err != nil {
		t.Error(out, err)
	}
	left := c.Kubectl(t, "get", "daemonsets,roles,rolebindings,networkpolicies,jobs",
		"--namespace=mesh", "-l", "app.kubernetes.io/name=sidecar-cni", "-o", "name")
	if diff := cmp.Diff([]string{"rolebinding.rbac.authorization.k8s.io/sidecar-cni-uninstall",
		"job.batch/sidecar-cni-uninstall"}, strings.Fields(left)); diff != "" {
		t.Errorf("left (-want +have):\n%s", diff)
	}
}

// TestLifecycle installs the product for real, on nodes of both generations of containerd, changes
// it, goes back, and takes it away.
func TestLifecycle(t *testing.T) {
	c := start(t, cluster.Options{Nodes: []cluster.NodeOptions{{Runtime: cluster.Containerd2},
		{Runtime: cluster.Containerd1}}})
	load(t, c)
	before := confs(t, c)
	c.Kubectl(t, "taint", "node", "node0", "sidecar-cni.io/not-ready:NoSchedule")
	install(t, c, "image.pullPolicy=Never", "nodeCondition=true", "untaint=true")
	c.AwaitRollout(t, "mesh", "daemonset/sidecar-cni")
	t.Run("what the notes say to look at", func(t *testing.T) { look(t, c) })
	for i, conf := range confs(t, c) {
		if cmp.Equal(before[i], conf) {
			t.Errorf("node %d has the chain that it had", i)
		}
	}
	for _, step := range []struct {
		name string
		args []string
		want string
	}{
		{"upgrade", []string{"upgrade", "sidecar-cni", chart(t), "--namespace=mesh",
			"--reset-then-reuse-values", "--set=image.tag=next,repair.mode=report"},
			"--repair=report"},
		{"rollback", []string{"rollback", "sidecar-cni", "--namespace=mesh"}, "--repair=repair"},
	} {
		covered := watch(t, c)
		if out, err := helmIn(t, c, step.args...); err != nil {
			t.Fatal(step.name, out, err)
		}
		c.AwaitRollout(t, "mesh", "daemonset/sidecar-cni")
		if err := covered(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if args := c.Kubectl(t, "--namespace=mesh", "get", "daemonset/sidecar-cni", "-o",
			"jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(args,
			step.want) {
			t.Errorf("%s: %s, want %s", step.name, args, step.want)
		}
	}
	t.Run("an uninstallation that broke off", func(t *testing.T) { givenUp(t, c, before) })
	out, err := helmIn(t, c, "uninstall", "sidecar-cni", "--namespace=mesh")
	if err != nil {
		t.Fatal(out, err)
	}
	if !strings.Contains(out, "2 nodes are out") {
		t.Errorf("%s: want that it says what the Job said", out)
	}
	if diff := cmp.Diff(before, confs(t, c)); diff != "" {
		t.Errorf("nodes (-before +after):\n%s", diff)
	}
	gone(t, c)
	t.Run("plain manifests", func(t *testing.T) { byHand(t, c, before) })
	t.Run("a node that is down", func(t *testing.T) { nodeDown(t, c) })
}

// givenUp has Helm give up waiting for the nodes, which take themselves out all the same, and goes
// back as the chart's README says.
func givenUp(t *testing.T, c *cluster.Cluster, before []map[string]string) {
	out, err := helmIn(t, c, "uninstall", "sidecar-cni", "--namespace=mesh", "--timeout=1s")
	if err == nil {
		t.Fatalf("it was done within a second: %s", out)
	}
	c.Kubectl(t, "--namespace=mesh", "wait", "--for=condition=complete", "--timeout=3m",
		"job/sidecar-cni-uninstall")
	if diff := cmp.Diff(before, confs(t, c)); diff != "" {
		t.Errorf("nodes (-before +after):\n%s", diff)
	}
	if rights, err := c.TryKubectl("", "--namespace=mesh", "get",
		"rolebinding/sidecar-cni-uninstall"); err == nil {
		t.Errorf("the Job's account still has rights: %s", rights)
	}
	for _, object := range []string{"nodes", "daemonsets --namespace=mesh"} {
		shown := c.Kubectl(t, append([]string{"get", "-o", "json", "--show-managed-fields"},
			strings.Fields(object)...)...)
		for _, word := range []string{"SidecarCNIReady", "sidecar-cni-withdraw"} {
			if strings.Contains(shown, word) {
				t.Errorf("%s have %s:\n%s", object, word, shown)
			}
		}
	}
	history := []struct{ Revision int }{}
	if out, err = helmIn(t, c, "history", "sidecar-cni", "--namespace=mesh",
		"--output=json"); err == nil {
		err = json.Unmarshal([]byte(out), &history)
	}
	if err != nil || len(history) == 0 {
		t.Fatal(out, err)
	}
	last := fmt.Sprint(history[len(history)-1].Revision)
	if out, err := helmIn(t, c, "rollback", "sidecar-cni", last, "--namespace=mesh"); err != nil {
		t.Fatal(out, err)
	}
	c.AwaitRollout(t, "mesh", "daemonset/sidecar-cni")
	for i, conf := range confs(t, c) {
		if cmp.Equal(before[i], conf) {
			t.Errorf("node %d has not been taken in again", i)
		}
	}
	look(t, c)
}

// load gives the nodes the image that `make image` builds, as if there were two versions of it.
func load(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	image, err := os.ReadFile(makeImage(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		c.Node(i).Run(t, string(image), "ctr", "--namespace=k8s.io", "images", "import", "-")
		for _, tag := range []string{"0.1.0", "next"} {
			c.Node(i).Run(t, "", "ctr", "--namespace=k8s.io", "images", "tag",
				"sidecar-cni/sidecar-cni:0.1.0", "docker.io/sidecar-cni/sidecar-cni:"+tag)
		}
	}
}

// look does what NOTES.txt says, and looks at what the features have done.
func look(t *testing.T, c *cluster.Cluster) {
	var pods []string
	c.Await(t, "an agent on each of two nodes", func(context.Context) error {
		pods = strings.Fields(c.Kubectl(t, "--namespace=mesh", "get", "pods", "-l",
			"app.kubernetes.io/component=agent", "-o", "jsonpath={.items[*].metadata.name}"))
		if len(pods) != 2 {
			return fmt.Errorf("there are %v", pods)
		}
		return nil
	})
	for _, pod := range pods {
		base := "/api/v1/namespaces/mesh/pods/" + pod + ":9466/proxy/"
		if ready := c.Kubectl(t, "get", "--raw", base+"readyz"); !strings.HasPrefix(ready,
			"ready: ") {
			t.Errorf("%s: %s", pod, ready)
		}
		c.Await(t, "the first look at the pods", func(context.Context) error {
			shown := c.Kubectl(t, "get", "--raw", base+"metrics")
			if !strings.Contains(shown, `sidecar_cni_repair_passes_total{result="partial"} 0`) ||
				strings.Contains(shown, `sidecar_cni_repair_passes_total{result="complete"} 0`) {
				return errors.New("no pass is complete")
			}
			return nil
		})
		for _, step := range []struct{ level, want string }{{"", "info"}, {"debug", "debug"},
			{"", "debug"}, {"info", "info"}} {
			args := append([]string{"--namespace=mesh", "exec", pod, "--", "/sidecar-cni-installer",
				"log-level"}, strings.Fields(step.level)...)
			if said := strings.TrimSpace(c.Kubectl(t, args...)); said != step.want {
				t.Errorf("%s: log-level %s says %q, want %q", pod, step.level, said, step.want)
			}
		}
		if out, err := c.TryKubectl("", "get", "--raw", base+"loglevel"); err == nil ||
			!strings.Contains(err.Error()+out, "for callers within the pod") {
			t.Errorf("%s: /loglevel from elsewhere: %s, %v", pod, out, err)
		}
		if log := c.Kubectl(t, "--namespace=mesh", "logs", pod); !strings.Contains(log,
			`"msg":"started agent"`) {
			t.Errorf("%s: %s", pod, log)
		}
	}
	c.Await(t, "the nodes to tell", func(ctx context.Context) error {
		nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			reports := slices.ContainsFunc(n.Status.Conditions, func(x corev1.NodeCondition) bool {
				return x.Type == "SidecarCNIReady" && x.Status == corev1.ConditionTrue
			})
			tainted := slices.ContainsFunc(n.Spec.Taints,
				func(x corev1.Taint) bool { return x.Key == "sidecar-cni.io/not-ready" })
			if !reports || tainted {
				return fmt.Errorf("%s: %v %v", n.Name, n.Status.Conditions, n.Spec.Taints)
			}
		}
		return nil
	})
}

// watch follows the agents' pods until it is asked what it saw: each node has to have a ready one
// all the time.
func watch(t *testing.T, c *cluster.Cluster) func() error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := c.Client().CoreV1().Pods("mesh").Watch(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent"})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan error, 1)
	go func() { seen <- bare(changes) }()
	return func() error {
		cancel()
		return <-seen
	}
}

// bare says which node was without a ready agent. The first events are the pods that there are.
func bare(changes apiwatch.Interface) error {
	ready, all := map[string]map[types.UID]bool{}, error(nil)
	for change := range changes.ResultChan() {
		pod, ok := change.Object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			continue
		}
		name := pod.Spec.NodeName
		if ready[name] == nil {
			ready[name] = map[types.UID]bool{}
		}
		had := len(ready[name]) > 0
		if cluster.Ready(pod) == nil && change.Type != apiwatch.Deleted {
			ready[name][pod.UID] = true
		} else {
			delete(ready[name], pod.UID)
		}
		if had && len(ready[name]) == 0 {
			all = errors.Join(all, fmt.Errorf("%s had no ready agent when pod %s went", name,
				pod.Name))
		}
	}
	if len(ready) != 2 {
		all = errors.Join(all, fmt.Errorf("saw agents on %d nodes", len(ready)))
	}
	return all
}

// byHand installs and uninstalls with kubectl alone, as manifests/uninstall.yaml says.
func byHand(t *testing.T, c *cluster.Cluster, before []map[string]string) {
	folder, err := filepath.Abs("manifests")
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "apply", "-f", folder+"/sidecar-cni.yaml")
	c.AwaitRollout(t, "kube-system", "daemonset/sidecar-cni")
	if cmp.Equal(before, confs(t, c)) {
		t.Error("the nodes have the chains that they had")
	}
	c.Kubectl(t, "delete", "--ignore-not-found", "-f", folder+"/uninstall.yaml")
	c.Kubectl(t, "apply", "-f", folder+"/uninstall.yaml")
	c.Kubectl(t, "--namespace=kube-system", "wait", "--for=condition=complete", "--timeout=5m",
		"job/sidecar-cni-uninstall")
	if said := c.Kubectl(t, "--namespace=kube-system", "logs",
		"job/sidecar-cni-uninstall"); said != "2 nodes are out\n" {
		t.Errorf("uninstall's Job said %q", said)
	}
	c.Kubectl(t, "delete", "--ignore-not-found", "-f", folder+"/uninstall.yaml", "-f",
		folder+"/sidecar-cni.yaml")
	if diff := cmp.Diff(before, confs(t, c)); diff != "" {
		t.Errorf("nodes (-before +after):\n%s", diff)
	}
	gone(t, c)
}

// gone waits until nothing of the product is left.
func gone(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Await(t, "the product to be gone", func(context.Context) error {
		left := c.Kubectl(t, "get",
			"all,sa,roles,rolebindings,networkpolicies,clusterroles,clusterrolebindings", "-A",
			"-l", "app.kubernetes.io/name=sidecar-cni", "-o", "name")
		if left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}

// nodeDown installs anew and uninstalls while a node is down: it ends in time, and names the node.
func nodeDown(t *testing.T, c *cluster.Cluster) {
	install(t, c, "image.pullPolicy=Never", "uninstall.timeout=15s")
	c.AwaitRollout(t, "mesh", "daemonset/sidecar-cni")
	c.Node(1).Kill(t)
	c.Await(t, "the node to be known as down", func(ctx context.Context) error {
		n, err := c.Client().CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(n.Spec.Taints, func(x corev1.Taint) bool {
			return x.Key == corev1.TaintNodeUnreachable && x.Effect == corev1.TaintEffectNoExecute
		}) {
			return errors.New("it is not tainted")
		}
		return nil
	})
	out, err := helmIn(t, c, "uninstall", "sidecar-cni", "--namespace=mesh")
	if err != nil || !strings.Contains(out, "may still have the plugin in their chain: node1") {
		t.Errorf("%s %v: want that it names the node", out, err)
	}
}

// confs reads the conf directory of each node.
func confs(t *testing.T, c *cluster.Cluster) []map[string]string {
	t.Helper()
	var all []map[string]string
	for i := range 2 {
		dir := c.Node(i).ConfDir()
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, dir)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files)
	}
	return all
}
