package inject_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// small is a template of today's form, of little more than a proxy, for what templates have little
// to do with.
const small = `
sidecarCNI: {excludeNamespaces: [closed]}
templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        image: example.com/proxy:1
        args: [proxy, sidecar]
        securityContext: {runAsUser: 1337}
`

func load(t testing.TB, injector string, more ...string) *config.Config {
	t.Helper()
	s := config.Sources{Injector: config.Source{Name: "injector", Data: []byte(injector)}}
	if len(more) > 0 {
		s.Mesh = config.Source{Name: "mesh", Data: []byte(more[0])}
	}
	if len(more) > 1 {
		s.Values = config.Source{Name: "values", Data: []byte(more[1])}
	}
	cfg, err := config.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// template is a configuration with one template of today's form.
func template(t testing.TB, text string) *config.Config {
	t.Helper()
	return load(t, marshal(t, podtree.Object{
		"policy": "enabled", "templates": podtree.Object{"sidecar": text},
	}))
}

// old is a configuration with a template of the old form.
func old(t testing.TB, text string) *config.Config {
	t.Helper()
	return load(t, marshal(t, podtree.Object{"policy": "enabled", "template": text}))
}

func marshal(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// istio11 and today are the configurations that the tests of package render have, too.
func istio11(t testing.TB) *config.Config { t.Helper(); return load(t, file(t, "istio-1.1.yaml")) }

func today(t testing.TB) *config.Config {
	t.Helper()
	return load(t, file(t, "today.yaml"), "", file(t, "today-values.yaml"))
}

func file(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("render", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// app is a pod of one container.
func app() podtree.Object {
	return podtree.Object{
		"metadata": podtree.Object{"name": "web", "labels": podtree.Object{"app": "web"}},
		"spec": podtree.Object{"containers": []any{
			podtree.Object{"name": "app", "image": "example.com/app:1"},
		}},
	}
}

func request(pod podtree.Object) inject.Request {
	return inject.Request{
		Pod: pod, Namespace: "shop", Type: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Workload: metav1.ObjectMeta{Name: "web"},
	}
}

func mustInject(t testing.TB, cfg *config.Config, pod podtree.Object) inject.Result {
	t.Helper()
	result, err := inject.Inject(cfg, request(pod))
	if err != nil {
		t.Fatal(err)
	}
	if !result.Decision.Inject {
		t.Fatalf("not injected: %s", result.Decision.Reason)
	}
	return result
}

func hasProxy(pod podtree.Object) bool { return container(pod, "istio-proxy") != nil }

// container returns a container of a pod, of either kind; nil if there is none.
func container(pod podtree.Object, name string) podtree.Object {
	for _, list := range []string{"containers", "initContainers"} {
		all := podtree.List(pod, "spec", list)
		if at := podtree.Named(all, name); at >= 0 {
			return all[at].(podtree.Object)
		}
	}
	return nil
}

// names are those of the objects of a list.
func names(list []any) []string {
	var all []string
	for _, item := range list {
		all = append(all, podtree.String(item.(podtree.Object), "name"))
	}
	return all
}

// indented is a text as the block of a YAML document.
func indented(text string) string { return strings.ReplaceAll("\n"+text, "\n", "\n  ") + "\n" }

// mustNotInject returns the JSON of a pod that was injected before, as it comes out.
func mustNotInject(t testing.TB, cfg *config.Config, pod podtree.Object) string {
	t.Helper()
	result, err := inject.Inject(cfg, request(pod))
	if err != nil || result.Decision.Reason != inject.AlreadyInjected {
		t.Errorf("%v, %v; want %s", result.Decision, err, inject.AlreadyInjected)
	}
	return marshal(t, result.Pod)
}
