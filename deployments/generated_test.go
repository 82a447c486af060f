package deployments_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const manifestHead = "# Written by `make generate`: the chart with its default values, for " +
	"kube-system.\n"

const uninstallHead = `# Written by ` + "`make generate`" +
	`. Takes all nodes out; apply it before anything is deleted, and wait for it:
#
#   (set the image, as in sidecar-cni.yaml)
#   kubectl apply -f uninstall.yaml
#   kubectl -n kube-system wait --for=condition=complete --timeout=5m job/sidecar-cni-uninstall
#   kubectl -n kube-system logs job/sidecar-cni-uninstall     names the nodes that are left, if there are any
#   kubectl delete --ignore-not-found -f uninstall.yaml -f sidecar-cni.yaml
`

// TestManifests compares deployments/manifests with what the chart renders.
func TestManifests(t *testing.T) {
	t.Parallel()
	text, err := helm(t, "template", "sidecar-cni", "chart", "--namespace=kube-system",
		"--no-hooks", someImage)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "manifests/sidecar-cni.yaml", manifestHead+plain(text))
	text, err = helm(t, "template", "sidecar-cni", "chart", "--namespace=kube-system",
		"--show-only=templates/uninstall.yaml", someImage)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "manifests/uninstall.yaml", uninstallHead+plain(text))
}

var helmsOwn = regexp.MustCompile(`(?m)^(# Source: .*|    helm\.sh/hook.*)\n`)

// plain takes away what only Helm understands.
func plain(text string) string {
	text = helmsOwn.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "  annotations:\n---", "---")
	text = regexp.MustCompile(`(?m)^  annotations:\n(\S)`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`\n\n+`).ReplaceAllString(text, "\n")
	return strings.TrimSpace(text) + "\n"
}

const readmeHead = `# The chart of sidecar-cni

<!-- Written by ` + "`make generate`" + ` from values.yaml and the texts in deployments/generated_test.go. -->

    helm install sidecar-cni ./chart --namespace kube-system --set image.repository=YOUR-REGISTRY/sidecar-cni

puts an agent on every node, which brings the plugin into the node's CNI chain and keeps it there. The one value is where the
image is: ` + "`make image`" + ` builds it into an archive, which any tool can push to your registry. Elsewhere than on a plain
cluster of kubeadm, name the ` + "`platform`" + `; [docs/platforms.md](../../docs/platforms.md) tells what each brings along. The notes
after the installation tell how to see that it works.

There is one installation in a cluster: nodes have one chain. Names are fixed, so that Helm refuses a second one.

    helm upgrade sidecar-cni ./chart --namespace kube-system --reset-then-reuse-values
    helm uninstall sidecar-cni --namespace kube-system

` + "`--reset-then-reuse-values`" + ` keeps what you have set and takes what is new in this chart; ` + "`--reuse-values`" + ` would leave that out.
During an upgrade each node keeps its old agent until the new one is ready. Uninstalling has each node take itself out first,
waits for that as long as ` + "`uninstall.timeout`" + ` says, and prints what is left. If the waiting itself fails, as without the right to
pull the image, nothing is deleted: look at the Job sidecar-cni-uninstall, and uninstall again, or with ` + "`--no-hooks`" + ` and
then the nodes by hand. Where pods require [the guard](../../docs/guard.md#what-it-costs), take their annotation away first: after an
uninstallation they would get no container.

An uninstallation that broke off has taken nodes out, and the release is still there: new meshed pods start without redirection,
and after 15 minutes an alert says so. Either uninstall again, or go back, to the last revision that the history shows:

    helm history sidecar-cni --namespace kube-system
    helm rollback sidecar-cni REVISION --namespace kube-system

Without Helm, apply the manifests again. The agents' pods are replaced, and the new ones take their nodes in again.

[docs/gitops.md](../../docs/gitops.md) is about Argo CD and Flux.

Without Helm:

    sed -i 's|sidecar-cni/sidecar-cni:|YOUR-REGISTRY/sidecar-cni:|' manifests/*.yaml
    kubectl apply -f manifests/sidecar-cni.yaml

The [manifests](../manifests) are this chart with its defaults but for the image, which has to be set in both of them; they are
a base for kustomize, too. Before they are deleted, apply ` + "`manifests/uninstall.yaml`" + `; it begins with the commands.

## What the agent may

All capabilities are dropped but these, the root file system is read only, seccomp is RuntimeDefault; it is not privileged and
not in the host's network. Directories of the host are mounted in their own places, read only where they are only read. What it
may do at the API server is in [docs/security.md](../../docs/security.md).

| right | when | what for |
|---|---|---|
`

const readmeValues = `
Pod Security: directories of the host are beyond baseline whatever the rights. A namespace that enforces it needs the label
` + "`pod-security.kubernetes.io/enforce=privileged`" + `.

## Values

A value that is not below is an error, and so is a value of the wrong kind.

| value | default | what it is for |
|---|---|---|
`

// TestChartReadme compares the chart's README with its values, and with the rights that TestRights
// finds.
func TestChartReadme(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(readmeHead)
	for _, r := range rights {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.what, r.when, r.why)
	}
	b.WriteString(readmeValues)
	for _, v := range values(t) {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.path, v.initial,
			strings.ReplaceAll(v.about, "|", "\\|"))
	}
	golden(t, "chart/README.md", b.String())
}

// A value is one of the chart's, with the comment above it.
type value struct{ path, initial, about string }

var valueKey = regexp.MustCompile(`^( *)([A-Za-z]+):`)

// values reads values.yaml: a key with a comment is a value, whatever is within it, and a key
// without one holds values.
func values(t *testing.T) []value {
	t.Helper()
	data, err := os.ReadFile("chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	initial := map[string]any{}
	if err := yaml.Unmarshal(data, &initial); err != nil {
		t.Fatal(err)
	}
	var all []value
	var about []string
	outer, within := "", false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			about = append(about, comment)
			continue
		}
		key := valueKey.FindStringSubmatch(line)
		switch {
		case key == nil:
		case key[1] == "" && len(about) > 0:
			outer, within = "", true
			all = append(all, value{key[2], show(t, initial[key[2]]), strings.Join(about, " ")})
		case key[1] == "":
			outer, within = key[2], false
		case !within && len(about) == 0:
			t.Errorf("values.yaml: %s.%s has no comment", outer, key[2])
		case !within:
			all = append(all, value{outer + "." + key[2],
				show(t, initial[outer].(map[string]any)[key[2]]), strings.Join(about, " ")})
		}
		about = nil
	}
	return all
}

func show(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSchemaKnowsEveryValue, and no other.
func TestSchemaKnowsEveryValue(t *testing.T) {
	t.Parallel()
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema object
	read(t, "chart/values.schema.json", &schema)
	known := map[string]bool{}
	for key, raw := range schema.Properties {
		var inner object
		if err := json.Unmarshal(raw, &inner); err != nil {
			t.Fatal(err)
		}
		known[key] = true
		for part := range inner.Properties {
			known[key+"."+part] = true
		}
	}
	for _, v := range values(t) {
		if !known[v.path] {
			t.Errorf("values.schema.json does not know %s", v.path)
		}
	}
	initial := map[string]any{}
	read(t, "chart/values.yaml", &initial)
	for key := range schema.Properties {
		if _, ok := initial[key]; !ok && key != "global" {
			t.Errorf("values.yaml does not have %s", key)
		}
	}
}
