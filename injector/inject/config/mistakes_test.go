package config_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	templates := func(text string) string { return "policy: enabled\ntemplates: {a: '', b: ''}\n" + text }
	rows := []struct {
		name, text string
		want       []string
	}{
		{"no document", "", []string{"injection configuration: it is empty"}},
		{"an empty document", "# nothing\n", []string{"inject.yaml: it is empty"}},
		{"no YAML", "a: b: c", []string{"inject.yaml: mapping values"}},
		{"no keys", "[a]", []string{"inject.yaml: want keys with values"}},
		{"another kind", "apiVersion: v1\nkind: List\nitems: []",
			[]string{`inject.yaml: kind: want a ConfigMap or the value of its key config, got "List"`}},
		{"policy not set", "template: a", []string{"policy: want enabled or disabled, it is not set"}},
		{"policy empty", "policy: ''\ntemplate: a", []string{"policy: want enabled or disabled, it is"}},
		{"policy null", "policy:\ntemplate: a", []string{"policy: want enabled or disabled, it is"}},
		{"policy", "policy: Enabled\ntemplate: a",
			[]string{`policy: want enabled or disabled, got "Enabled"`}},
		{"policy no text", "policy: [enabled]\ntemplate: a",
			[]string{"policy: want enabled or disabled: cannot unmarshal array"}},
		{"policy a truth value", "policy: on\ntemplate: a",
			[]string{`policy: want enabled or disabled, got "true"`}},

		{"no template", "policy: enabled", []string{"template: not set, nor is templates"}},
		{"both templates", "policy: enabled\ntemplate: a\ntemplates: {a: ''}",
			[]string{"template: there is templates, too; want one of them"}},
		{"Istio's mark alone",
			"policy: enabled\ntemplate: '{{ Template_Version_And_Istio_Version_Mismatched_X }}'",
			[]string{"template: it is Istio's mark"}},
		{"an empty template", "policy: enabled\ntemplate: '  '", []string{"template: it is empty"}},
		{"no templates", "policy: enabled\ntemplates: {}", []string{"templates: want at least one"}},
		{"templates that are none", "policy: enabled\ntemplates: [a]",
			[]string{"templates: want texts by name, such as sidecar: |: cannot unmarshal array"}},
		{"a template that is no text", "policy: enabled\ntemplates: {a: {b: c}}",
			[]string{"templates: want texts by name, such as sidecar: |: cannot unmarshal object"}},
		{"a default that is not there", templates("defaultTemplates: [a, c]"),
			[]string{`defaultTemplates: there is no template "c", only "a", "b"`}},
		{"the default is not there", templates(""),
			[]string{`defaultTemplates: there is no template "sidecar", only "a", "b"`}},
		{"aliases and defaults that are none", templates("aliases: [a]\ndefaultTemplates: {a: b}"),
			[]string{
				"aliases: want lists of names by name, such as all: [sidecar, logs]: cannot",
				"defaultTemplates: want a list of names, such as [sidecar]: cannot unmarshal object",
			}},
		{"aliases of what is not there", templates("aliases: {x: [a], z: [x, c]}\ndefaultTemplates: [x]"),
			[]string{`aliases["z"]: there is no template "x"`, `aliases["z"]: there is no template "c"`}},
		{"an alias of nothing", templates("aliases: {x: []}\ndefaultTemplates: [a]"),
			[]string{`aliases["x"]: want at least one template`}},

		{"selectors", old + `
neverInjectSelector:
- matchLabels: {app: web}
- matchExpressions: [{key: a, operator: Is}]
- matchLabels: {"a b": web}
alwaysInjectSelector: [{matchExpressions: [{key: a, operator: In}]}]`,
			[]string{
				`neverInjectSelector[1]: "Is" is not a valid label selector operator`,
				`neverInjectSelector[2]: key: Invalid value: "a b"`,
				"alwaysInjectSelector[0]: values: Invalid value: null: for 'in', 'notin' operators",
			}},
		{"a selector's key", old + "neverInjectSelector: [{matchLabel: {app: web}}]",
			[]string{`neverInjectSelector: want a list of label selectors, such as ` +
				`[{matchLabels: {app: web}}]: unknown field "matchLabel"`}},
		{"one selector", old + "alwaysInjectSelector: {matchLabels: {app: web}}",
			[]string{"alwaysInjectSelector: want a list of label selectors"}},
		{"annotations", old + "injectedAnnotations: {'a b': c, d: e}",
			[]string{`injectedAnnotations: Invalid value: "a b": name part must consist of`}},

		{"settings that are none", old + "sidecarCNI: true",
			[]string{"sidecarCNI: want keys with values, such as nativeSidecars: true: got \"true\""}},
		{"settings", old + `
sidecarCNI:
  nativeSidecar: true
  nativeSidecars: maybe
  excludeNamespaces: [shop, Kube-System]
  environment: [A]
  revision: a b
  rewriteProbes: 1`, []string{
			"sidecarCNI.environment: want texts by name: cannot unmarshal array",
			"sidecarCNI.nativeSidecars: want true or false: got \"maybe\"",
			"sidecarCNI.rewriteProbes: want true or false: got \"1\"",
			`unknown key "sidecarCNI.nativeSidecar", want one of nativeSidecars, excludeNamespaces, ` +
				"environment, revision, rewriteProbes",
			`sidecarCNI.excludeNamespaces[1]: want a namespace, got "Kube-System"`,
			`sidecarCNI.revision: want what can be a label's value, got "a b"`,
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			mistakes(t, sources(row.text, "", ""), row.want)
		})
	}
}

// mistakes holds that loading reports these mistakes, in this order, and no others.
func mistakes(t *testing.T, s config.Sources, want []string) {
	t.Helper()
	cfg, err := config.Load(s)
	if err == nil {
		t.Fatalf("no mistake in %+v", cfg)
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d mistakes, want %d:\n%v", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], "read ") || !strings.Contains(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}

func TestConfigMapsThatAreRefused(t *testing.T) {
	t.Parallel()
	swapped := configMap(t, "istio", map[string]string{"mesh": "", "meshNetworks": ""})
	mistakes(t, sources(swapped, "", ""), []string{
		`inject.yaml: ConfigMap "istio" has no key config in data, only "mesh", "meshNetworks"`,
	})
	mistakes(t, sources("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", "", ""), []string{
		`inject.yaml: ConfigMap "a" has no key config in data, only none`,
	})
	mistakes(t, sources("kind: ConfigMap\nmetadata: {name: a}\ndata: {config: {policy: b}}", "", ""),
		[]string{`inject.yaml: data.config of ConfigMap "a": want text, as a ConfigMap has it`})
	mistakes(t, sources(configMap(t, "a", map[string]string{"config": "a: b: c"}), "", ""),
		[]string{"inject.yaml: data.config: mapping values"})
	mistakes(t, sources(configMap(t, "a", map[string]string{"config": today, "values": "[1]"}),
		"", ""), []string{"inject.yaml: data.values: want keys with values"})
	mistakes(t, sources(today, swapped+" ", configMap(t, "b", nil)), []string{
		`values.yaml: ConfigMap "b" has no key values in data, only none`,
	})
}

func TestMistakesOfAllDocumentsComeAtOnce(t *testing.T) {
	t.Parallel()
	mistakes(t, sources("policy: a\ntemplate: ''", "connectTimeout: a\nenableTracing: b\n"+
		"defaultConfig: {statusPort: c}", "- 1"), []string{
		"values.yaml: want keys with values",
		`mesh.yaml: defaultConfig.statusPort: want a number (int32), got "c"`,
		`mesh.yaml: connectTimeout: want a duration such as 45s, got "a"`,
		`mesh.yaml: enableTracing: want true or false, got "b"`,
		`inject.yaml: policy: want enabled or disabled, got "a"`,
		"inject.yaml: template: it is empty",
	})
}

func TestDocumentsBeyondBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("#", 3<<20+1)
	mistakes(t, sources(long, long, long), []string{
		"inject.yaml: it has 3145729 bytes, want at most 3145728",
		"mesh.yaml: it has 3145729 bytes, want at most 3145728",
		"values.yaml: it has 3145729 bytes, want at most 3145728",
	})
	bomb := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 100_000) + "]"
	mistakes(t, sources(bomb, bomb, bomb), []string{
		"inject.yaml: its aliases stand for more than 6291456 bytes",
		"mesh.yaml: its aliases stand for more than 6291456 bytes",
		"values.yaml: its aliases stand for more than 6291456 bytes",
	})
}

// A document of many mistakes, or of a long one, is not repeated to whoever reads the messages.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	long := "policy: " + strings.Repeat("é", 10_000) + "\ntemplate: a\n"
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "- matchLabels: {'a b %d': a}\n", i)
	}
	_, err := config.Load(sources(long+"neverInjectSelector:\n"+many.String(), "", ""))
	if err == nil {
		t.Fatal("no mistake")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 101 || lines[100] != "there are more mistakes than are shown here" {
		t.Errorf("%d mistakes, the last %q", len(lines), lines[len(lines)-1])
	}
	if len(lines[0]) > 1010 || !utf8.ValidString(lines[0]) || !strings.HasSuffix(lines[0], "...") {
		t.Errorf("%q", lines[0])
	}

	cfg := load(t, old+"alwaysInjectSelector: ["+strings.Repeat("{}, ", 1000)+"]")
	if len(cfg.Warnings) != 101 ||
		cfg.Warnings[100] != "there are more warnings than are shown here" {
		t.Errorf("%d warnings", len(cfg.Warnings))
	}
}

func TestTemplatesThatDoNotParse(t *testing.T) {
	t.Parallel()
	_, err := config.Load(sources(`
policy: enabled
templates:
  sidecar: "{{ if }}"
  logs: "spec: {}"
  more: "{{ nonesuch }}"
`, "", ""))
	if err == nil {
		t.Fatal("no mistake")
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != 2 || !strings.Contains(got[0], `read inject.yaml: `) ||
		!strings.Contains(got[0], "more") || !strings.Contains(got[1], "sidecar") {
		t.Errorf("want one sentence each about the templates more and sidecar, got:\n%v", err)
	}
}

// The error of a document names the document that there is, where nobody gave it a name.
func TestNamelessSources(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Sources{
		Injector: config.Source{Data: []byte("[]")},
		Mesh:     config.Source{Data: []byte("[]")},
		Values:   config.Source{Data: []byte("[]")},
	})
	const want = "want keys with values, such as policy: enabled"
	if diff := cmp.Diff("read injection configuration: "+want+"\nread mesh configuration: "+want+
		"\nread values: "+want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
