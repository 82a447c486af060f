package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
)

// Templates that give a container more than Pod Security's level restricted allows are named.
func TestTemplatesBeyondRestricted(t *testing.T) {
	t.Parallel()
	const rest = `: pods with that do not pass Pod Security "restricted"; use mode REDIRECT ` +
		"without it, or namespaces whose level is privileged"
	initContainer := `  initContainers:
  - name: istio-init
    securityContext: {privileged: true, capabilities: {add: [NET_ADMIN, NET_RAW]}}
`
	proxy := `  containers:
  - name: istio-proxy
    securityContext:
`
	capabilities := func(add string) string { return "      capabilities: {add: [" + add + "]}\n" }
	byMode := "      [[ if eq (index .ObjectMeta.Annotations `sidecar.istio.io/interceptionMode`) " +
		"`TPROXY` ]]\n" + capabilities("NET_ADMIN") + "      [[ end ]]\n"
	byMesh := strings.ReplaceAll("      [[ if eq .ProxyConfig.InterceptionMode.String `TPROXY` ]]\n"+
		capabilities("NET_ADMIN")+"      [[ end ]]\n", "`", `"`)
	rows := []struct{ name, template, want string }{
		{"nothing", initContainer + proxy + "      runAsUser: 1337\n", ""},
		{"NET_ADMIN", proxy + capabilities("NET_ADMIN"),
			"container istio-proxy NET_ADMIN in mode REDIRECT"},
		{"NET_ADMIN by annotation", initContainer + proxy + byMode,
			"container istio-proxy NET_ADMIN in mode TPROXY"},
		{"NET_ADMIN by the mesh", initContainer + proxy + byMesh,
			"container istio-proxy NET_ADMIN in mode TPROXY"},
		{"another capability", proxy + capabilities("NET_BIND_SERVICE, SYS_PTRACE"),
			"container istio-proxy SYS_PTRACE in mode REDIRECT"},
		{"the one that is allowed", proxy + capabilities("NET_BIND_SERVICE"), ""},
		{"privileged", proxy + "      privileged: true\n",
			"container istio-proxy privileged in mode REDIRECT"},
		{"another init container", strings.Replace(initContainer, "istio-init", "core-dump", 1),
			"container core-dump privileged in mode REDIRECT"},
		{"an error, and NET_ADMIN of the proxy",
			"  [[ .Values.global.absent.hub ]]\n" + proxy + "      capabilities:\n        add:\n" +
				"        - NET_ADMIN\n", "NET_ADMIN to a container other than istio-init"},
		{"an error, and NET_ADMIN of istio-init",
			"  [[ .Values.global.absent.hub ]]\n" + initContainer + proxy, ""},
		{"no YAML, and NET_ADMIN in front",
			"  a: b: c # NET_ADMIN\n" + initContainer, "NET_ADMIN to a container other than istio-init"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			want := func(name string) []string {
				if row.want == "" {
					return nil
				}
				return []string{`inject.yaml: template "` + name + `" gives ` + row.want + rest}
			}
			seeds := load(t, "policy: enabled\ntemplate: |\n"+row.template)
			if diff := cmp.Diff(want("template"), seeds.Warnings); diff != "" {
				t.Errorf("the seeds' form (-want +got):\n%s", diff)
			}
			inSpec := "    spec:\n" + strings.ReplaceAll("\n"+row.template, "\n", "\n    ")
			inSpec = strings.NewReplacer("[[", "{{", "]]", "}}").Replace(inSpec)
			now := load(t, "policy: enabled\ntemplates:\n  sidecar: |\n"+inSpec)
			if diff := cmp.Diff(want("sidecar"), now.Warnings); diff != "" {
				t.Errorf("today's form (-want +got):\n%s", diff)
			}
		})
	}
}

// The templates of Istio's forms load, and give rights under TPROXY only.
func TestTemplatesOfIstio(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile("../render/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, cfg := range []*config.Config{
		load(t, read("istio-1.1.yaml")),
		loadAll(t, read("today.yaml"), "", read("today-values.yaml")),
	} {
		if len(cfg.Warnings) != 1 ||
			!strings.Contains(cfg.Warnings[0], "istio-proxy NET_ADMIN in mode TPROXY") {
			t.Errorf("warnings %q", cfg.Warnings)
		}
	}
}

// Whatever the documents are, loading ends without a panic, and what loads has a template.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(old), []byte("trustDomain: a"), []byte("a: 1"))
	f.Add([]byte(today), []byte(nil), []byte(nil))
	f.Add([]byte("policy: disabled\ntemplates: {a: '{{ .Spec }}', b: ''}\ndefaultTemplates: [c]\n"+
		"aliases: {c: [a, b]}\nneverInjectSelector: [{matchExpressions: [{key: a, operator: In, "+
		"values: [b]}]}]\nsidecarCNI: {excludeNamespaces: [a], rewriteProbes: true}"),
		[]byte("defaultConfig: {concurrency: 2}"), []byte(`{"global": {}}`))
	f.Add([]byte("kind: ConfigMap\ndata: {config: 'policy: enabled', values: 'a: 1'}"),
		[]byte("kind: ConfigMap\ndata: {mesh: ''}"), []byte("kind: ConfigMap"))
	f.Fuzz(func(t *testing.T, injector, mesh, values []byte) {
		s := config.Sources{
			Injector: config.Source{Name: "injector", Data: injector},
			Mesh:     config.Source{Name: "mesh", Data: mesh},
			Values:   config.Source{Name: "values", Data: values},
		}
		cfg, err := config.Load(s)
		if err != nil {
			return
		}
		if (cfg.Template == nil) == (len(cfg.Templates) == 0) {
			t.Errorf("template %v, templates %v: want one of them", cfg.Template, cfg.Templates)
		}
		for name, template := range cfg.Templates {
			if template == nil {
				t.Errorf("template %q is nil", name)
			}
		}
		if cfg.Template == nil && len(cfg.DefaultTemplates) == 0 {
			t.Error("no default templates")
		}
		if cfg.Mesh == nil || cfg.Values == nil {
			t.Errorf("mesh %v, values %v", cfg.Mesh, cfg.Values)
		}
		if again, err := config.Load(s); err != nil || again.Version != cfg.Version {
			t.Errorf("a second time: %v", err)
		}
	})
}
