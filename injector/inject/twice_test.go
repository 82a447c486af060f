package inject_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// Istio's own template writes a key twice for an annotation sidecar.istio.io/userVolume that is a
// list: the name that it makes up, and the author's.
func TestOfAKeyThatIsThereTwiceTheLastValueCounts(t *testing.T) {
	t.Parallel()
	const volumes = `
containers: [{name: istio-proxy, image: proxy}]
volumes:
- name: "0"
  name: certs
  emptyDir: {}`
	for name, result := range map[string]podtree.Object{
		"today":        mustInjectWarned(t, "spec:"+strings.ReplaceAll(volumes, "\n", "\n  "), false),
		"with anchors": mustInjectWarned(t, "spec: &a"+strings.ReplaceAll(volumes, "\n", "\n  "), false),
		"old":          mustInjectWarned(t, volumes, true),
	} {
		want := []any{podtree.Object{"name": "certs", "emptyDir": podtree.Object{}}}
		if diff := cmp.Diff(want, podtree.List(result, "spec", "volumes")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func mustInjectWarned(t *testing.T, text string, seeds bool) podtree.Object {
	t.Helper()
	form := template
	if seeds {
		form = old
	}
	result := mustInject(t, form(t, text), fromYAML(t, "spec: {containers: [{name: app, image: app}]}"))
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0],
		`key "name" already set in map: the last one counts`) {
		t.Errorf("warnings: %q", result.Warnings)
	}
	return result.Pod
}

// Istio's injector writes this variable beside its templates.
func TestTheNetworkOfThePodsLabelIsTheProxys(t *testing.T) {
	t.Parallel()
	cfg := template(t, "spec: {containers: [{name: istio-proxy, image: proxy, "+
		"env: [{name: ISTIO_META_NETWORK, value: mesh}, {name: X, value: y}]}]}")
	for labels, want := range map[string]string{
		"{topology.istio.io/network: own}": "own", "{app: web}": "mesh",
	} {
		result := mustInject(t, cfg, fromYAML(t, "metadata: {labels: "+labels+"}\n"+
			"spec: {containers: [{name: app, image: app}]}"))
		env := podtree.List(container(result.Pod, "istio-proxy"), "env")
		at := podtree.Named(env, "ISTIO_META_NETWORK")
		if len(env) != 2 || at < 0 || env[at].(podtree.Object)["value"] != want {
			t.Errorf("%s: %v, want %s", labels, env, want)
		}
		if app := container(result.Pod, "app"); app["env"] != nil {
			t.Errorf("the app has it, too: %v", app)
		}
	}
}
