package inject_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/strip"
)

// What a template yields that is no proxy of a pod, and what is said about it.
func TestMistakesOfTemplates(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, row := range []struct {
		name string
		form func(testing.TB, string) *config.Config
		text string
		want string // with template "NAME": in front
	}{
		{"nothing", template, "{{/* later */}}", "yields nothing, want the fields of a pod"},
		{"nothing", old, "# later", "yields nothing, want the fields of a pod"},
		{"a text", template, "hello", "yields a text or a list, want the fields of a pod"},
		{"a list", old, "- hello", "yields a text or a list, want the fields of a pod"},
		{"no YAML", template, "spec: {", "yields no YAML: line 1: did not find expected node content"},
		{"no YAML", old, "a: b: c", "yields no YAML: mapping values are not allowed in this context"},
		{
			"aliases", template, aliases(),
			"its aliases stand for more than 2097152 bytes, or for themselves; write them out",
		},
		{"too deep", template, "spec: " + deep, "yields no YAML: exceeded max depth of 10000"},
		{"no pod", template, "kind: Pod", "yields no pod; want metadata, spec or both"},
		{
			"another kind", template, "{kind: Deployment, apiVersion: apps/v1, spec: {}}",
			"yields a Deployment of apps/v1, want a Pod of v1",
		},
		{
			"unknown fields", template, "spec: {containers: [{name: istio-proxy, foo: 1, securityContext: {bar: 2}}]}",
			`the API's pods have no field "spec.containers[0].foo", ` +
				`"spec.containers[0].securityContext.bar"; correct or remove it`,
		},
		{
			"unknown fields", old, "containers: [{name: istio-proxy, foo: 1}]",
			`the API's pods have no field "containers[0].foo"; correct or remove it`,
		},
		{
			"another type", template, "spec: {containers: {name: istio-proxy}}",
			"spec.containers: is an object, want a list",
		},
		{
			"another type", old, "containers: [{name: istio-proxy, ports: [{containerPort: web}]}]",
			"containers.ports.containerPort: is a text, want a whole number",
		},
		{
			"no names", template, "spec: {containers: [{image: i}], volumes: [{emptyDir: {}}]}",
			"containers[0] has no name; give it one\nvolumes[0] has no name; give it one",
		},
		{"no name", old, "initContainers: [{image: i}]", "initContainers[0] has no name; give it one"},
		{
			"a null", template, "spec: {containers: [null]}",
			"containers[0] has no name; give it one",
		},
		{"no container", old, "containers: [x]", "containers: is a text, want an object"},
		{
			"a port that is none", old, "containers: [{name: a, image: i, ports: [{containerPort: 99999999999}]}]",
			"containers.ports.containerPort: is the number 99999999999, want a whole number",
		},
		{
			"a text for a bool", template, "spec: {containers: [{name: istio-proxy, image: i, tty: x}]}",
			"spec.containers.tty: is a text, want true or false",
		},
		{
			"names that the pod has", old, "containers: [{name: app, image: i}]\nvolumes: [{name: data, emptyDir: {}}]",
			"the pod has a container \"app\" already; rename it\nthe pod has a volume \"data\" already; rename it",
		},
		{
			"no proxy", template, "spec: {containers: [{name: other, image: i}]}",
			"the pod would not be redirected: it has no container istio-proxy",
		},
		{
			"a gateway", old, "containers: [{name: istio-proxy, image: i, args: [proxy, router]}]",
			"the pod would not be redirected: its proxy is not a sidecar but a gateway",
		},
		{
			"disabled", old, "containers: [{name: istio-proxy, image: i, env: [{name: DISABLE_ENVOY, value: true}]}]",
			"the pod would not be redirected: DISABLE_ENVOY is set: there is no proxy to redirect to",
		},
		{
			"no image", template, "spec: {containers: [{name: istio-proxy}]}",
			`container "istio-proxy" has no image; set it there, or by the values it is made of`,
		},
		{
			"a name twice", template,
			"spec: {containers: [{name: istio-proxy, image: i}], initContainers: [{name: istio-proxy, image: i}]}",
			`the pod would have two containers "istio-proxy"; rename one`,
		},
		{
			"not executable", template, "spec: {{ .Nonsense }}", "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := app()
			podtree.Set(pod, []any{podtree.Object{"name": "data", "emptyDir": podtree.Object{}}}, "spec", "volumes")
			cfg, err := configured(t, row.form, row.text)
			var result inject.Result
			if err == nil {
				result, err = inject.Inject(cfg, request(pod))
			}
			if err == nil || result.Pod != nil {
				t.Fatalf("%v, %v; want an error and no pod", result, err)
			}
			if !strings.Contains(err.Error(), `template "`) {
				t.Errorf("%v: want the template named", err)
			}
			_, got, _ := strings.Cut(err.Error(), `": `)
			if row.want != "" && got != row.want {
				t.Errorf("%s\nwant %s", got, row.want)
			}
		})
	}
}

// aliases is a short YAML that stands for some 10 MB.
func aliases() string {
	text := "a: &a " + strings.Repeat("x", 1000) + "\nb: &b [" + strings.Repeat("*a, ", 100) + "]\n"
	return text + "c: [" + strings.Repeat("*b, ", 100) + "]\n"
}

// configured returns what form makes, or the error of a configuration that is refused at load.
func configured(t *testing.T, form func(testing.TB, string) *config.Config, text string) (
	*config.Config, error) {
	t.Helper()
	if !strings.Contains(text, "Nonsense") {
		return form(t, text), nil
	}
	_, err := config.Load(config.Sources{Injector: config.Source{
		Name: "injector",
		Data: []byte(marshal(t, podtree.Object{
			"policy": "enabled", "templates": podtree.Object{"sidecar": text},
		})),
	}})
	if err != nil {
		return nil, err
	}
	return form(t, text), nil
}

func TestUnknownKeysOfOldTemplates(t *testing.T) {
	t.Parallel()
	result := mustInject(t, old(t, "later: 1"+oldProxy), app())
	want := []string{`template "template": the key "later" is unknown and has no effect`}
	if diff := cmp.Diff(want, result.Warnings); diff != "" {
		t.Error(diff)
	}
}

// All mistakes in the annotations of a pod come at once, each with its key, before templates copy
// them into flags.
func TestMistakesOfAnnotations(t *testing.T) {
	t.Parallel()
	wrong := map[string]string{
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0",
		"traffic.sidecar.istio.io/excludeInboundPorts":     "http",
		"sidecar.istio.io/interceptionMode":                "MAYBE",
		"status.sidecar.istio.io/port":                     "all",
		"proxy.istio.io/config":                            "statusPort: none",
	}
	for name, cfg := range map[string]*config.Config{"istio 1.1": istio11(t), "today": today(t)} {
		pod := app()
		for key, value := range wrong {
			podtree.Set(pod, value, "metadata", "annotations", key)
		}
		result, err := inject.Inject(cfg, request(pod))
		if err == nil {
			t.Fatalf("%s: %v", name, result)
		}
		for key := range wrong {
			if !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %q has nothing about %s", name, err, key)
			}
		}
		// A pod that is left alone may say what it wants about redirection.
		podtree.Delete(pod, "metadata", "annotations", "proxy.istio.io/config")
		podtree.Set(pod, "NONE", "metadata", "annotations", "sidecar.istio.io/interceptionMode")
		podtree.Delete(pod, "metadata", "annotations", "status.sidecar.istio.io/port")
		if _, err := inject.Inject(cfg, request(pod)); err != nil {
			t.Errorf("%s: NONE: %v", name, err)
		}
	}
}

func TestATemplateThatDoesNotExist(t *testing.T) {
	t.Parallel()
	pod := app()
	podtree.Set(pod, "sidecar,gateway", "metadata", "annotations", "inject.istio.io/templates")
	_, err := inject.Inject(today(t), request(pod))
	const want = `annotation inject.istio.io/templates: no template is called "gateway"; there are: ` +
		"logging, sidecar, all"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// What istio-init was told and no annotation can say keeps the pod from being injected: it would
// be redirected otherwise than its template says.
func TestARefusalOfStrip(t *testing.T) {
	t.Parallel()
	cfg := old(t, "initContainers: [{name: istio-init, image: i, args: [-p, 15001, --dry-run]}]"+oldProxy)
	result, err := inject.Inject(cfg, request(app()))
	var refusal *strip.Refusal
	if !errors.As(err, &refusal) || len(refusal.Reasons) == 0 || result.Pod != nil {
		t.Errorf("%v, %v; want a refusal", result, err)
	}
}

func TestMistakesOfPods(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ pod, want string }{
		{"spec: {containers: none}", "read pod: spec.containers: is a text, want a list"},
		{"{metadata: {}}", "read pod: it has no spec"},
		{"{spec: null}", "read pod: it has no spec"},
		{
			"spec: {containers: [null], volumes: [{name: a}, null]}",
			"read pod: containers[0] has no name; give it one\nvolumes[1] has no name; give it one",
		},
		{
			"{metadata: {labels: {a: [b]}}, spec: {}}",
			"read pod: metadata.labels: is a list, want a text",
		},
		{
			"{metadata: {annotations: {a: 1}}, spec: {}}",
			"read pod: metadata.annotations: is a number, want a text",
		},
		{
			"spec: {containers: [{name: a, image: i}, {name: a, image: i}]}",
			`template "sidecar": the pod would have two containers "a"; rename one`,
		},
		{
			"spec: {containers: [{name: istio-init, image: i}]}",
			"remove istio-init: it is among the containers, where it is not expected: " +
				`make "istio-init" an init container, or rename it`,
		},
	} {
		_, err := inject.Inject(load(t, "policy: enabled"+small), request(fromYAML(t, row.pod)))
		if err == nil || err.Error() != row.want {
			t.Errorf("%s: %v\nwant %s", row.pod, err, row.want)
		}
	}
}

// The author of a pod leaves the image of the proxy to a template that has none.
func TestAnImageThatNobodyNames(t *testing.T) {
	t.Parallel()
	const pod = "spec: {containers: [{name: istio-proxy, image: auto}]}"
	_, err := inject.Inject(template(t, "spec: {containers: [{name: istio-proxy}]}"),
		request(fromYAML(t, pod)))
	if err == nil || !strings.Contains(err.Error(), `container "istio-proxy" has no image`) {
		t.Error(err)
	}
}

// With an error it is known what was decided, and no pod comes back.
func TestTheDecisionOfAnError(t *testing.T) {
	t.Parallel()
	result, err := inject.Inject(template(t, "spec: {}"), request(app()))
	want := inject.Result{Decision: inject.Decision{Inject: true, Reason: inject.PolicyEnabled}}
	if diff := cmp.Diff(want, result); err == nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	pod := app()
	podtree.Set(pod, "TPROXY", "metadata", "annotations", "sidecar.istio.io/interceptionMode")
	for name, cfg := range map[string]*config.Config{"istio 1.1": istio11(t), "today": today(t)} {
		result := mustInject(t, cfg, pod)
		want := []string{`container "istio-proxy" has the capability NET_ADMIN, which Pod Security ` +
			"baseline and restricted refuse"}
		if diff := cmp.Diff(want, result.Warnings); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A pod that the mesh leaves alone gets its proxy and no redirection.
func TestModeNone(t *testing.T) {
	t.Parallel()
	pod := app()
	podtree.Set(pod, "NONE", "metadata", "annotations", "sidecar.istio.io/interceptionMode")
	for name, cfg := range map[string]*config.Config{"istio 1.1": istio11(t), "today": today(t)} {
		result := mustInject(t, cfg, pod)
		if !hasProxy(result.Pod) || container(result.Pod, "istio-init") != nil {
			t.Errorf("%s: %v", name, result.Pod)
		}
	}
}

// The bounds of what a pod may have, in one sentence each or in good time.
func TestLargePods(t *testing.T) {
	t.Parallel()
	variables := func(n int) []any {
		env := make([]any, n)
		for i := range env {
			env[i] = podtree.Object{"name": fmt.Sprint("V", i), "value": "x"}
		}
		return env
	}
	for _, row := range []struct {
		name string
		pod  func(podtree.Object)
		want string
	}{
		{"10,000 variables", func(p podtree.Object) { container(p, "app")["env"] = variables(10000) }, ""},
		{
			"10,000 variables of a proxy of its own", func(p podtree.Object) {
				proxy := podtree.Object{"name": "istio-proxy", "image": "auto", "env": variables(10000)}
				podtree.Set(p, append(podtree.List(p, "spec", "containers"), proxy), "spec", "containers")
			}, "",
		},
		{
			"an annotation of 1 MB", func(p podtree.Object) {
				podtree.Set(p, strings.Repeat("x", 1<<20), "metadata", "annotations", "a")
			}, "the pod has 1048716 bytes, want at most 1048576",
		},
		{
			"just too large with its proxy", func(p podtree.Object) {
				podtree.Set(p, strings.Repeat("x", 1<<20-200), "metadata", "annotations", "a")
			}, "the pod with its sidecar has 1048911 bytes, want at most 1048576",
		},
		{
			"1,000 containers", func(p podtree.Object) {
				list := make([]any, 1000)
				for i := range list {
					list[i] = podtree.Object{"name": fmt.Sprint("c", i), "image": "i"}
				}
				podtree.Set(p, list, "spec", "containers")
			}, "read pod: containers has 1000 items, want at most 256",
		},
		{
			"1,000 volumes", func(p podtree.Object) {
				list := make([]any, 1000)
				for i := range list {
					list[i] = podtree.Object{"name": fmt.Sprint("v", i), "emptyDir": podtree.Object{}}
				}
				podtree.Set(p, list, "spec", "volumes")
			}, `template "sidecar": spec.volumes of the pod has 1000 items, want at most 256 where a ` +
				"template adds some",
		},
		{
			"100,000 templates", func(p podtree.Object) {
				podtree.Set(p, strings.Repeat("sidecar,", 100000), "metadata", "annotations",
					"inject.istio.io/templates")
			}, "annotation inject.istio.io/templates: names 100001 templates, want at most 16",
		},
		{
			"a long name of a template", func(p podtree.Object) {
				podtree.Set(p, strings.Repeat("x", 100000), "metadata", "annotations",
					"inject.istio.io/templates")
			}, `annotation inject.istio.io/templates: no template is called "` +
				strings.Repeat("x", 64) + `"; there are: sidecar`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := app()
			row.pod(pod)
			cfg := load(t, "policy: enabled"+small+"      volumes: [{name: v, emptyDir: {}}]\n")
			_, err := inject.Inject(cfg, request(pod))
			if got := fmt.Sprint(err); got != row.want && (err != nil || row.want != "") {
				t.Errorf("%s\nwant %s", got, row.want)
			}
		})
	}
}

// A pod that names no template is not told about its annotation.
func TestTooManyDefaultTemplates(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled\ntemplates: {sidecar: 'spec: {}'}\ndefaultTemplates: ["+
		strings.Repeat("sidecar, ", 16)+"sidecar]")
	_, err := inject.Inject(cfg, request(app()))
	const want = "defaultTemplates of the configuration: names 17 templates, want at most 16"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
