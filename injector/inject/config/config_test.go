package config_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
)

const (
	old = `policy: enabled
template: |-
  containers:
  - name: istio-proxy
    image: proxyv2
`
	today = `policy: disabled
templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
`
)

// load reads the data of the key config, alone.
func load(t *testing.T, text string) *config.Config {
	t.Helper()
	return loadAll(t, text, "", "")
}

func loadAll(t *testing.T, injector, mesh, values string) *config.Config {
	t.Helper()
	cfg, err := config.Load(sources(injector, mesh, values))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// sources are of texts; an empty one is none.
func sources(injector, mesh, values string) config.Sources {
	return config.Sources{
		Injector: source("inject.yaml", injector),
		Mesh:     source("mesh.yaml", mesh),
		Values:   source("values.yaml", values),
	}
}

func source(name, text string) config.Source {
	if text == "" {
		return config.Source{}
	}
	return config.Source{Name: name, Data: []byte(text)}
}

// configMap is what kubectl get configmap -o json writes.
func configMap(t *testing.T, name string, data map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{"name": name, "resourceVersion": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := load(t, old)
	if !cfg.Enabled || cfg.Template == nil || cfg.Templates != nil || cfg.Never != nil ||
		cfg.Always != nil || cfg.InjectedAnnotations != nil || cfg.DefaultTemplates != nil {
		t.Errorf("%+v", cfg)
	}
	want := config.Settings{ExcludeNamespaces: []string{
		"kube-system", "kube-public", "kube-node-lease", "local-path-storage",
	}}
	if diff := cmp.Diff(want, cfg.Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if cfg.Values == nil || len(cfg.Values) != 0 || cfg.Mesh.ProxyListenPort != 15001 {
		t.Errorf("values %v, mesh %v", cfg.Values, cfg.Mesh)
	}
	if len(cfg.Warnings) != 0 {
		t.Errorf("warnings %q", cfg.Warnings)
	}

	cfg = load(t, today)
	if cfg.Enabled || cfg.Template != nil || len(cfg.Templates) != 1 ||
		cfg.Templates["sidecar"] == nil {
		t.Errorf("%+v", cfg)
	}
	if diff := cmp.Diff([]string{"sidecar"}, cfg.DefaultTemplates); diff != "" {
		t.Errorf("default templates (-want +got):\n%s", diff)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	t.Parallel()
	cfg := loadAll(t, `
policy: enabled
template: "{{ Template_Version_And_Istio_Version_Mismatched_Check_Installation }}"
templates: {proxy: "spec: {}", logs: "spec: {}"}
defaultTemplates: [all, logs]
aliases: {all: [proxy, logs]}
neverInjectSelector:
- matchLabels: {app: web, version: 1}
- matchExpressions: [{key: batch, operator: Exists}]
alwaysInjectSelector:
- matchLabels: {always: true}
injectedAnnotations: {example.com/a: 1, b: text}
sidecarCNI:
  nativeSidecars: true
  excludeNamespaces: []
  environment: {A: "\x85 text\u2028 \t", B: 1, C: true}
  revision: canary
  rewriteProbes: false
`, "rootNamespace: mesh", `{"global": {"hub": "here", "port": 15020, "share": 0.5}}`)
	if !cfg.Enabled || cfg.Template != nil {
		t.Errorf("%+v", cfg)
	}
	if diff := cmp.Diff([]string{"logs", "proxy"},
		slices.Sorted(maps.Keys(cfg.Templates))); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"all", "logs"}, cfg.DefaultTemplates); diff != "" {
		t.Errorf("default templates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"all": {"proxy", "logs"}}, cfg.Aliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
	matches := func(selectors []labels.Selector, pod labels.Set) bool {
		return slices.ContainsFunc(selectors, func(s labels.Selector) bool {
			return s.Matches(pod)
		})
	}
	if !matches(cfg.Never, labels.Set{"app": "web", "version": "1"}) ||
		matches(cfg.Never, labels.Set{"app": "web"}) ||
		!matches(cfg.Never, labels.Set{"batch": ""}) ||
		!matches(cfg.Always, labels.Set{"always": "true"}) || matches(cfg.Always, nil) {
		t.Errorf("never %v, always %v", cfg.Never, cfg.Always)
	}
	if diff := cmp.Diff(map[string]string{"example.com/a": "1", "b": "text"},
		cfg.InjectedAnnotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	no := false
	if diff := cmp.Diff(config.Settings{
		NativeSidecars:    true,
		ExcludeNamespaces: []string{},
		Environment:       map[string]string{"A": "\u0085 text\u2028 \t", "B": "1", "C": "true"},
		Revision:          "canary",
		RewriteProbes:     &no,
	}, cfg.Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if cfg.Mesh.RootNamespace != "mesh" {
		t.Errorf("root namespace %q", cfg.Mesh.RootNamespace)
	}
	if diff := cmp.Diff(map[string]any{"global": map[string]any{
		"hub": "here", "port": int64(15020), "share": 0.5,
	}}, cfg.Values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if len(cfg.Warnings) != 0 {
		t.Errorf("warnings %q", cfg.Warnings)
	}
}

// A document is the data itself or the whole ConfigMap, and its version is that of what it says.
func TestSourcesInEachForm(t *testing.T) {
	t.Parallel()
	const mesh, values = "rootNamespace: mesh\ntrustDomain: a\n", `{"a": 1, "b": 2}`
	injector := configMap(t, "istio-sidecar-injector", map[string]string{
		"config": today, "values": values,
	})
	meshes := configMap(t, "istio", map[string]string{"mesh": mesh, "meshNetworks": "networks: {}"})
	inYAML := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  config: |\n    " +
		strings.ReplaceAll(today, "\n", "\n    ") + "\n"
	want := loadAll(t, today, mesh, values)
	rows := []struct {
		name    string
		sources config.Sources
	}{
		{"ConfigMaps", sources(injector, meshes, "")},
		{"one ConfigMap twice", sources(injector, meshes, injector)},
		{"a ConfigMap and data", sources(injector, mesh, values)},
		{"a ConfigMap in YAML", sources(inYAML, mesh, values)},
		{"in another order, with comments",
			sources("# a\n"+today, "trustDomain: a\nrootNamespace: mesh\n", "b: 2\na: 1\n")},
		{"data in JSON", sources(today, `{"rootNamespace": "mesh", "trustDomain": "a"}`, values)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(row.sources)
			if err != nil {
				t.Fatal(err)
			}
			if got.Version != want.Version || len(got.Version) != 64 {
				t.Errorf("version %s, want %s", got.Version, want.Version)
			}
			if got.Mesh.RootNamespace != "mesh" {
				t.Errorf("root namespace %q", got.Mesh.RootNamespace)
			}
			if diff := cmp.Diff(want.Values, got.Values); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
	if cfg := loadAll(t, injector, mesh, "c: 3"); cfg.Values["c"] != int64(3) ||
		cfg.Values["a"] != nil {
		t.Errorf("values beside those of the ConfigMap: %v", cfg.Values)
	}
}

func TestVersionChangesWithEachDocument(t *testing.T) {
	t.Parallel()
	versions := map[string]string{}
	for _, s := range [][3]string{
		{today, "", ""}, {today + "defaultTemplates: [sidecar]\n", "", ""},
		{today, "trustDomain: a", ""}, {today, "", "trustDomain: a"}, {today, "", "a: 1"},
		{strings.Replace(today, "istio-proxy", "proxy", 1), "", ""},
		{today + "sidecarCNI: {revision: a}\n", "", ""},
	} {
		version := loadAll(t, s[0], s[1], s[2]).Version
		if other, ok := versions[version]; ok {
			t.Errorf("%q has the version of %q", s, other)
		}
		versions[version] = strings.Join(s[:], "|")
	}
	if a, b := load(t, today).Version, loadAll(t, today, "{}", "{}").Version; a != b {
		t.Errorf("empty documents change the version: %s, %s", a, b)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	cfg := loadAll(t, old+`
nonesuch: 1
defaultTemplates: [sidecar]
neverInjectSelector: [{}, {matchLabels: {}}]
alwaysInjectSelector:
-
- matchLabels: {app: web}
`, "nonesuch: 2", "")
	const where, mesh = "inject.yaml: ", "mesh.yaml: "
	const empty = ": it is empty and matches no pod; name labels, or remove it"
	if diff := cmp.Diff([]string{
		mesh + `unknown key "nonesuch", it has no effect`,
		where + `unknown key "nonesuch", it has no effect`,
		where + "neverInjectSelector[0]" + empty,
		where + "neverInjectSelector[1]" + empty,
		where + "alwaysInjectSelector[0]" + empty,
		where + "defaultTemplates and aliases have no effect beside template",
	}, cfg.Warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(cfg.Never) != 0 || len(cfg.Always) != 1 {
		t.Errorf("never %v, always %v", cfg.Never, cfg.Always)
	}
}
