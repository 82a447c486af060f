//go:build e2e

package e2e_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// seedRows are a policy, whether neverInjectSelector and alwaysInjectSelector match, the
// annotation, and whether a pod is injected, as an overview of Istio's injector has them.
//
//nolint:dupword // two columns of a row may say the same
const seedRows = `
enabled  match     match     true  yes
enabled  match     not-match true  yes
enabled  not-match match     true  yes
enabled  not-match not-match true  yes
enabled  match     match     false no
enabled  match     not-match false no
enabled  not-match match     false no
enabled  not-match not-match false no
enabled  match     match     -     no
enabled  match     not-match -     no
enabled  not-match match     -     yes
enabled  not-match not-match -     yes
disabled match     match     true  yes
disabled match     not-match true  yes
disabled not-match match     true  yes
disabled not-match not-match true  yes
disabled match     match     false no
disabled match     not-match false no
disabled not-match match     false no
disabled not-match not-match false no
disabled match     match     -     no
disabled match     not-match -     no
disabled not-match match     -     yes
disabled not-match not-match -     no
`

// exists are selectors of pods that have one label or another.
func exists(label string) []any {
	return []any{
		podtree.Object{"matchLabels": podtree.Object{"sidecar/label": label}},
		podtree.Object{"matchExpressions": []any{
			podtree.Object{"key": "sidecar/" + label, "operator": "Exists"}}},
	}
}

// decides asks the API server about each row, in a namespace that the webhook is called for, and
// in one that it is not.
func (in *injecting) decides(t *testing.T) {
	before := in.configuration(t)
	for _, policy := range []string{"enabled", "disabled"} {
		in.configure(t, before, func(config podtree.Object) {
			config["policy"] = policy
			config["neverInjectSelector"] = exists("notinject")
			config["alwaysInjectSelector"] = exists("inject")
		})
		rows := 0
		for row := range strings.Lines(strings.TrimSpace(seedRows)) {
			if f := strings.Fields(row); f[0] == policy {
				rows++
				in.expectRow(t, f)
			}
		}
		if rows != 12 {
			t.Errorf("policy %s has %d rows, want 12", policy, rows)
		}
	}
	in.writeConfiguration(t, before)
}

// expectRow asks about a pod as a row of the table has it.
func (in *injecting) expectRow(t *testing.T, row []string) {
	t.Helper()
	p := newPod(injectedSpace, "row")
	for i, label := range []string{"sidecar/notinject", "sidecar/inject"} {
		if row[1+i] == "match" {
			p.Labels[label] = "on"
		}
	}
	if row[3] != "-" {
		p.Annotations["sidecar.istio.io/inject"] = row[3]
	}
	if got := isInjected(in.mustAdmit(t, p)); got != (row[4] == "yes") {
		t.Errorf("%v: injected is %v", row, got)
	}
	p.Namespace = plainSpace
	if isInjected(in.mustAdmit(t, p)) {
		t.Errorf("%v: injected in a namespace that is not labelled", row)
	}
}

// configuration returns the configuration of injection as the chart has written it.
func (in *injecting) configuration(t *testing.T) string {
	t.Helper()
	found, err := in.Client().CoreV1().ConfigMaps(home).Get(t.Context(), injectorName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Data["config"]
}

// configure changes one configuration into another, which becomes that of all replicas.
func (in *injecting) configure(t *testing.T, text string, change func(podtree.Object)) {
	t.Helper()
	config := podtree.Object{}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	change(config)
	changed, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	in.writeConfiguration(t, string(changed))
}

// writeConfiguration waits until each replica has loaded what is written.
func (in *injecting) writeConfiguration(t *testing.T, text string) {
	t.Helper()
	since := float64(time.Now().UnixNano()) / 1e9
	in.replaceConfiguration(t, text)
	in.awaitReplicas(t, func(loaded float64) bool { return loaded >= since },
		"sidecar_cni_injector_configuration_loaded_timestamp_seconds")
}

// replaceConfiguration writes the ConfigMap, as an administrator does who edits it.
func (in *injecting) replaceConfiguration(t *testing.T, text string) {
	t.Helper()
	maps := in.Client().CoreV1().ConfigMaps(home)
	found, err := maps.Get(t.Context(), injectorName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found.Data["config"] = text
	if _, err := maps.Update(t.Context(), found, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// badConfiguration: the last good one stays in force, and who is responsible is told, by a metric
// and an Event.
func (in *injecting) badConfiguration(t *testing.T) {
	const valid = "sidecar_cni_injector_configuration_valid"
	is := func(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
	in.awaitReplicas(t, is(1), valid)
	before := in.configuration(t)
	defer in.awaitReplicas(t, is(1), valid)
	defer in.replaceConfiguration(t, before)
	in.replaceConfiguration(t, strings.Replace(before, "policy: enabled", "policy: perhaps", 1))
	in.awaitReplicas(t, is(0), valid)
	for _, p := range in.mustReplicas(t) {
		in.awaitEvent(t, &p, "SidecarConfigurationRefused", home+"/"+injectorName, `"perhaps"`)
	}
	if p := in.mustAdmit(t, newPod(injectedSpace, "asks")); !isInjected(p) {
		t.Errorf("beside a bad configuration a pod has the containers %v", containers(p))
	}
}

// selectorEdited: what the configuration of the webhook selects holds at once, and nobody restarts
// anything. No manifest has what certify has written, so nobody who compares sees a difference.
func (in *injecting) selectorEdited(t *testing.T) {
	for _, name := range []string{injectWith, stripWith} {
		manifest := in.webhookManifest(t, name)
		if strings.Contains(manifest, "caBundle") {
			t.Errorf("the manifest of %s has a caBundle:\n%s", name, manifest)
		}
		if diff, err := in.TryKubectl(manifest, "diff", "--server-side", "--force-conflicts", "-f",
			"-"); err != nil {
			t.Errorf("the chart and the cluster differ: %v\n%s", err, diff)
		}
	}
	before := in.mustReplicas(t)
	const everywhere = `[{"op":"replace","path":"/webhooks/0/namespaceSelector","value":` +
		`{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":["` +
		plainSpace + `"]}]}}]`
	original := in.Kubectl(t, "get", "mutatingwebhookconfiguration", injectWith, "-o",
		"jsonpath={.webhooks[0].namespaceSelector}")
	in.patchWebhook(t, injectWith, everywhere)
	in.awaitInjection(t, plainSpace, true)
	in.awaitInjection(t, injectedSpace, false)
	in.patchWebhook(t, injectWith,
		`[{"op":"replace","path":"/webhooks/0/namespaceSelector","value":`+original+`}]`)
	in.awaitInjection(t, plainSpace, false)
	in.awaitInjection(t, injectedSpace, true)
	if after := in.mustReplicas(t); podNames(before) != podNames(after) {
		t.Errorf("the replicas were %s and are %s", podNames(before), podNames(after))
	}
}

// patchWebhook changes a webhook configuration by a JSON patch.
func (in *injecting) patchWebhook(t *testing.T, name, patch string) {
	t.Helper()
	in.Kubectl(t, "patch", "mutatingwebhookconfiguration", name, "--type=json", "--patch="+patch)
}

// webhookManifest is the manifest of a webhook configuration, as Helm has rendered it.
func (in *injecting) webhookManifest(t *testing.T, name string) string {
	t.Helper()
	program, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	out, err := in.Try("", program, "get", "manifest", release, "--namespace="+home,
		"--kubeconfig="+in.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(out, "\n---\n") {
		if strings.Contains(document, "kind: MutatingWebhookConfiguration\n") &&
			strings.Contains(document, "name: "+name+"\n") {
			return document
		}
	}
	t.Fatalf("there is no %s in\n%s", name, out)
	return ""
}

// expectNamespaces asks in which namespaces pods are injected where all are but those that are
// named.
func (in *injecting) expectNamespaces(t *testing.T) {
	t.Helper()
	in.awaitInjection(t, plainSpace, true)
	in.awaitInjection(t, strippedSpace, true)
	in.labelled(t, "disabled", "restricted", "istio-injection=disabled")
	in.namespace(t, "istio-system", "restricted")
	for _, space := range []string{"disabled", "istio-system", home} {
		in.awaitInjection(t, space, false)
	}
}
