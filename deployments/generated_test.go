package deployments_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const manifestHead = "# Written by `make generate`: the chart with its default values, for " +
	"kube-system.\n"

const uninstallHead = `# Written by ` + "`make generate`" +
	`. Takes all nodes out, which has to be done before anything is deleted:
#
#   (set the image here, too: kustomization.yaml does not have this file)
#   kubectl delete --ignore-not-found -f uninstall.yaml       a Job of an earlier uninstallation, which is complete already
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

    helm install sidecar-cni deployments/chart --namespace kube-system --set platform=kubeadm \
      --set image.repository=YOUR-REGISTRY/sidecar-cni

puts an agent on every node, which brings the plugin into the node's CNI chain and keeps it there. Paths are those from the top of the
repository. The image is yours: ` + "`make image`" + ` builds it into an archive, and the [README](../../README.md#on-a-cluster) says how to push it.
` + "`platform`" + ` is the kind of cluster; [docs/platforms.md](../../docs/platforms.md) has all of them. The notes after the installation tell
how to see that it works.

There is one installation in a cluster: nodes have one chain. Names are fixed, so that Helm refuses a second one.

    helm upgrade sidecar-cni deployments/chart --namespace kube-system --reset-then-reuse-values
    helm test sidecar-cni --namespace kube-system
    helm uninstall sidecar-cni --namespace kube-system

` + "`--reset-then-reuse-values`" + ` keeps what you have set and takes what is new in this chart; ` + "`--reuse-values`" + ` would leave that out.
` + "`helm test`" + ` runs a pod in the namespace ` + "`test.namespace`" + `, which ends well if its traffic is redirected.

During an upgrade each node keeps its old agent until the new one is ready. Uninstalling has each node take itself out first,
waits for that as long as ` + "`uninstall.timeout`" + ` says, and prints what is left. If the waiting itself fails, as without the right to
pull the image, nothing is deleted: look at the Job sidecar-cni-uninstall, and at sidecar-cni-injector-withdraw before it, and uninstall again, or with ` + "`--no-hooks`" + ` and
then the nodes by hand. Where pods require [the guard](../../docs/guard.md#what-it-costs), take their annotation away first: after an
uninstallation they would get no container.

An uninstallation that broke off has taken nodes out, and the release is still there: new meshed pods start without redirection,
and after 15 minutes an alert says so. Either uninstall again, or go back, to the last revision that the history shows:

    helm history sidecar-cni --namespace kube-system
    helm rollback sidecar-cni REVISION --namespace kube-system

Without Helm, apply the manifests again. The agents' pods are replaced, and the new ones take their nodes in again.

[docs/gitops.md](../../docs/gitops.md) is about Argo CD and Flux.

Without Helm:

    sed -i 's|sidecar-cni/sidecar-cni:|YOUR-REGISTRY/sidecar-cni:|' deployments/manifests/*.yaml
    kubectl apply -f deployments/manifests/sidecar-cni.yaml

The [manifests](../manifests) are this chart with its defaults, so they are for a cluster of kubeadm. They are a base for kustomize, too.
Before they are deleted, every node has to be taken out: ` + "`uninstall.yaml`" + ` begins with the commands.

## The injector

    helm upgrade sidecar-cni deployments/chart --namespace kube-system --reset-then-reuse-values \
      --set injector.enabled=true --set injector.values.global.proxy.image=YOUR-REGISTRY/your-proxy:1.0
    kubectl label namespace NAMESPACE istio-injection=enabled

puts a proxy into the pods that are created in that namespace; [docs/inject.md](../../docs/inject.md) has the template and its
values, [injection](injection) what is delivered. Where a control plane has its configuration in ConfigMaps, the injector reads those:
` + "`injector.configMaps.injector=istio-system/istio-sidecar-injector` and `injector.configMaps.mesh=istio-system/istio`" + `. With
` + "`injector.strip.enabled=true`" + ` it takes istio-init out of pods that another injector has filled.

[docs/injector.md](../../docs/injector.md) has the rest: certificates, switching it off, and the way without Helm.

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
	var about, outer []string // outer are the keys that hold the next line's
	within := -1              // the depth of a value whose lines follow
	for line := range strings.Lines(string(data)) {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			about = append(about, comment)
			continue
		}
		key := valueKey.FindStringSubmatch(line)
		if key == nil {
			about = nil
			continue
		}
		depth := len(key[1]) / 2
		if within >= 0 && depth > within {
			continue
		}
		path := slices.Concat(outer[:min(depth, len(outer))], []string{key[2]})
		outer, within = path, -1
		if len(about) > 0 {
			within = depth
			found, _, _ := unstructured.NestedFieldNoCopy(initial, path...)
			all = append(all, value{strings.Join(path, "."), show(t, found),
				strings.Join(about, " ")})
		} else if strings.TrimSpace(line) != key[2]+":" {
			t.Errorf("values.yaml: %s has no comment", strings.Join(path, "."))
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
	var schema property
	read(t, "chart/values.schema.json", &schema)
	known := schema.paths("")
	for _, v := range values(t) {
		if !slices.Contains(known, v.path) {
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

// A property is a value of the schema.
type property struct {
	Properties map[string]json.RawMessage `json:"properties"`
}

// paths lists the values within it.
func (p property) paths(prefix string) (all []string) {
	for key, raw := range p.Properties {
		var inner property
		all = append(all, prefix+key)
		if json.Unmarshal(raw, &inner) == nil { // false is one, too: no such key
			all = append(all, inner.paths(prefix+key+".")...)
		}
	}
	return all
}
