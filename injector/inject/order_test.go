package inject_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// Each of the mesh's containers, in an order that is none of those wanted.
const everything = `
initContainers:
- {name: enable-core-dump, image: i}
- {name: istio-validation, image: i}
- {name: late, image: i}
containers:
- {name: istio-proxy, image: i}
- {name: logger, image: i, restartPolicy: Always}
`

func TestOrder(t *testing.T) {
	t.Parallel()
	const own = `
metadata: {annotations: {sidecar-cni.io/initContainers: ""}}
spec:
  initContainers: [{name: first, image: i}, {name: second, image: i}]
  containers: [{name: app, image: i}, {name: other, image: i}]
`
	const native = "sidecarCNI: {nativeSidecars: true}\n"
	for _, row := range []struct {
		name                  string
		settings, mesh, value string
		annotation            string
		init, ordinary        []string
	}{
		{
			name:     "the proxy is last",
			init:     []string{"istio-validation", "first", "second", "late", "enable-core-dump"},
			ordinary: []string{"app", "other", "logger", "istio-proxy"},
		},
		{
			name:     "held by the mesh",
			mesh:     "defaultConfig: {holdApplicationUntilProxyStarts: true}",
			init:     []string{"istio-validation", "first", "second", "late", "enable-core-dump"},
			ordinary: []string{"istio-proxy", "app", "other", "logger"},
		},
		{
			name:       "held by the pod",
			annotation: "holdApplicationUntilProxyStarts: true",
			init:       []string{"istio-validation", "first", "second", "late", "enable-core-dump"},
			ordinary:   []string{"istio-proxy", "app", "other", "logger"},
		},
		{
			name:       "not held by the pod",
			mesh:       "defaultConfig: {holdApplicationUntilProxyStarts: true}",
			annotation: "holdApplicationUntilProxyStarts: false",
			init:       []string{"istio-validation", "first", "second", "late", "enable-core-dump"},
			ordinary:   []string{"app", "other", "logger", "istio-proxy"},
		},
		{
			name:     "held by the values",
			value:    "global: {proxy: {holdApplicationUntilProxyStarts: true}}",
			init:     []string{"istio-validation", "first", "second", "late", "enable-core-dump"},
			ordinary: []string{"istio-proxy", "app", "other", "logger"},
		},
		{
			name:     "a native sidecar",
			settings: native,
			init: []string{
				"istio-validation", "istio-proxy", "enable-core-dump", "first", "second", "late",
			},
			ordinary: []string{"app", "other", "logger"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := fromYAML(t, own)
			if row.annotation != "" {
				podtree.Set(pod, row.annotation, "metadata", "annotations", "proxy.istio.io/config")
			}
			text := "policy: enabled\n" + row.settings + "template: |" + indented(everything)
			result := mustInject(t, load(t, text, row.mesh, row.value), pod)
			for list, want := range map[string][]string{
				"initContainers": row.init, "containers": row.ordinary,
			} {
				if diff := cmp.Diff(want, names(podtree.List(result.Pod, "spec", list))); diff != "" {
					t.Errorf("%s (-want +got) %s", list, diff)
				}
			}
			if restart := container(result.Pod, "logger")["restartPolicy"]; restart != nil {
				t.Errorf("logger: restartPolicy %v", restart)
			}
			restart := container(result.Pod, "istio-proxy")["restartPolicy"]
			if native := row.settings != ""; native != (restart == "Always") {
				t.Errorf("restartPolicy %v", restart)
			}
		})
	}
}

// istio-init was the last of the init containers, and so those of the pod had the network to
// themselves: they keep it. Behind a native sidecar there is nothing to keep.
func TestInitContainersBeforeTheRulesKeepTheNetwork(t *testing.T) {
	t.Parallel()
	const template = `
initContainers:
- {name: istio-init, image: i, args: [-p, 15001, -z, 15006, -u, 1337, -m, REDIRECT, -i, '*', -b, '*', -d, 15020]}
containers:
- {name: istio-proxy, image: i, securityContext: {runAsUser: 1337}}
`
	pod := `
spec:
  securityContext: {runAsUser: 2000}
  initContainers: [{name: first, image: i, securityContext: {runAsUser: 3000}}]
  containers: [{name: app, image: i}]
`
	const key = "sidecar-cni.io/initContainers"
	for settings, want := range map[string]any{
		"": "bypass", "sidecarCNI: {nativeSidecars: true}\n": nil,
	} {
		text := "policy: enabled\n" + settings + "template: |" + indented(template)
		result := mustInject(t, load(t, text), fromYAML(t, pod))
		if got := podtree.Get(result.Pod, "metadata", "annotations", key); got != want {
			t.Errorf("%q: %s is %v, want %v", settings, key, got, want)
		}
		if container(result.Pod, "istio-init") != nil {
			t.Errorf("%q: istio-init is still there", settings)
		}
	}
}

// So do those that the template has behind istio-init.
func TestInitContainersOfTheTemplateRunBeforeTheRules(t *testing.T) {
	t.Parallel()
	const text = `
initContainers:
- {name: istio-init, image: i, args: [-p, 15001, -z, 15006, -u, 1337, -m, REDIRECT, -i, '*', -b, '*', -d, 15020]}
- {name: late, image: i, securityContext: {runAsUser: 3000}}
containers:
- {name: istio-proxy, image: i, securityContext: {runAsUser: 1337}}
`
	const pod = "spec: {containers: [{name: app, image: i, securityContext: {runAsUser: 2000}}]}"
	const key = "sidecar-cni.io/initContainers"
	result := mustInject(t, old(t, text), fromYAML(t, pod))
	if got := podtree.Get(result.Pod, "metadata", "annotations", key); got != "bypass" {
		t.Errorf("%s is %v", key, got)
	}
}

// A template that is made for a CNI plugin has no istio-init, from which the mode could be read,
// and the plugin does not know the mesh's configuration.
func TestTheMeshsModeBecomesThePods(t *testing.T) {
	t.Parallel()
	const key = "sidecar.istio.io/interceptionMode"
	for _, row := range []struct {
		mesh, own string
		want      any
	}{
		{"", "", nil},
		{"defaultConfig: {interceptionMode: TPROXY}", "", "TPROXY"},
		{"defaultConfig: {interceptionMode: NONE}", "", "NONE"},
		{"defaultConfig: {interceptionMode: NONE}", "REDIRECT", "REDIRECT"},
	} {
		pod := app()
		if row.own != "" {
			podtree.Set(pod, row.own, "metadata", "annotations", key)
		}
		result := mustInject(t, load(t, "policy: enabled"+small, row.mesh), pod)
		if got := podtree.Get(result.Pod, "metadata", "annotations", key); got != row.want {
			t.Errorf("%+v: %v", row, got)
		}
	}
}
