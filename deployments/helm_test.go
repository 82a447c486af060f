// Package deployments_test looks at the chart with the real Helm: at what it renders for each
// platform and feature, and whether all that is written down about it still holds. What a real API
// server says about it is in the tests with the tag e2e.
package deployments_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sidecar-cni/sidecar-cni/installer/platforms"
)

//go:generate go test . -run "^(TestManifests|TestChartReadme|TestSignalsPage)$" -update

var update = flag.Bool("update", false, "write what is there instead of comparing with it")

// golden compares a text with a file, line by line.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s (-is +should be); if it should, run make generate\n%s", file, diff)
	}
}

// helmPath is the real Helm, built when it is first needed.
var helmPath = sync.OnceValues(func() (string, error) {
	out, err := command("go", "tool", "-modfile=../tools/helm/go.mod", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), told(err)
})

func command(name string, args ...string) *exec.Cmd {
	return exec.Command(name, args...)
}

// told adds what a program has said to its error.
func told(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// helm runs Helm without any of the user's settings.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(path, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(),
		"HELM_DATA_HOME="+t.TempDir())
	out, err := cmd.Output()
	return string(out), told(err)
}

// policies have Helm believe that the API server knows ValidatingAdmissionPolicies.
const policies = "--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

// someImage is the value that the chart has no default for: the name under which tests have the
// image.
const someImage = "--set=image.repository=sidecar-cni/sidecar-cni"

// render renders the chart for a namespace with values as --set takes them.
func render(t *testing.T, namespace string, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", "sidecar-cni", "chart", "--namespace=" + namespace, policies,
		someImage}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	return helm(t, args...)
}

// A scenario is a set of values worth looking at.
type scenario struct {
	name      string
	namespace string
	values    []string
}

// everything switches on all that can be on together.
var everything = []string{
	"repair.mode=evict", "labelPods=true", "untaint=true", "nodeCondition=true",
	"guard.mode=refuse", "guard.requiredPlugin=true", "tool.live=true", "tool.role=true",
	"backend=iptables-legacy",
	"podMonitor.enabled=true", "serviceMonitor.enabled=true", "prometheusRule.enabled=true",
	"dashboard.enabled=true",
	"resourceQuota.enabled=true", "networkPolicy.from[0].namespaceSelector.matchLabels.team=watch",
	"podAnnotations.team=mesh", "podLabels.team=mesh", "nodeSelector.zone=a",
	"image.pullSecrets[0].name=registry",
	"pluginConf.dnsCapture=all", "apiServer=https://kube.example:6443", "maxSurge=2",
	"extraEnv[0].name=HTTPS_PROXY", "revisionHistoryLimit=3",
	"injector.enabled=true", "injector.strip.enabled=true", "injector.guard=none",
	"injector.configMaps.injector=istio-system/istio-sidecar-injector",
	"injector.configMaps.mesh=istio-system/istio",
}

// injecting switches the injector on, with the one value that has no default.
func injecting(values ...string) []string {
	return append([]string{"injector.enabled=true",
		"injector.values.global.proxy.image=registry.example/proxy:1"}, values...)
}

// somePEM looks like a certificate.
const somePEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"

// scenarios are the defaults, each platform with what it brings, and everything at once.
func scenarios() []scenario {
	all := []scenario{
		{"default", "kube-system", nil},
		{"everything", "mesh", everything},
		{"least", "mesh", []string{"repair.mode=off", "networkPolicy.enabled=false",
			"seLinuxType="}},
		{"live without repair", "mesh", []string{"repair.mode=off", "tool.live=true"}},
		{"no guard", "mesh", []string{"guard.mode=off"}},
		{"the guard's socket beside the runtime's", "mesh",
			[]string{"guard.socket=/run/containerd/nri.sock"}},
		{"standalone", "mesh", []string{"way=standalone", "multusConfDir=/etc/multus",
			"attachment.namespace=mesh"}},
		{"injection", "mesh", injecting()},
		{"injection everywhere, by cert-manager", "mesh", injecting(
			"injector.inject.namespaces=all", "injector.certificates.mode=certManager")},
		{"another issuer", "mesh", injecting("injector.certificates.mode=certManager",
			"injector.certificates.issuer.name=mesh",
			"injector.certificates.issuer.kind=ClusterIssuer")},
		{"stripping only, by files", "mesh", []string{"injector.enabled=true",
			"injector.inject.enabled=false", "injector.strip.enabled=true",
			"injector.certificates.mode=files", "injector.certificates.secret=tls",
			"injector.certificates.caBundle=" + somePEM}},
	}
	all = append(all,
		scenario{"k3s before its fixed path", "mesh",
			[]string{"platform=k3s", "binDir=/var/lib/rancher/k3s/data/current/bin"}},
		scenario{"k3s with another network", "mesh",
			[]string{"platform=k3s", "confDir=/etc/cni/net.d", "binDir=/opt/cni/bin"}},
	)
	for _, p := range platforms.All {
		all = append(all, scenario{p.Name, "mesh", []string{"platform=" + p.Name}})
	}
	return all
}

// objects renders a scenario, and reads what came out.
func (s scenario) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	text, err := render(t, s.namespace, s.values...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

// decode reads documents of YAML.
func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := map[string]any{}
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(object) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: object})
		}
	}
}

// find returns the only object of a kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind,
	name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects,
		func(o *unstructured.Unstructured) bool {
			return o.GetKind() == kind && o.GetName() == name
		})
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return objects[i]
}

// as reads an object into its type, and takes no field that the type does not have.
func as[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object,
		typed, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

// daemonSet returns the agent's.
func (s scenario) daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	return as[appsv1.DaemonSet](t, find(t, s.objects(t), "DaemonSet", "sidecar-cni"))
}

// agent returns the agent's only container.
func agent(t *testing.T, d *appsv1.DaemonSet) corev1.Container {
	t.Helper()
	containers := d.Spec.Template.Spec.Containers
	if len(containers) != 1 || len(d.Spec.Template.Spec.InitContainers) != 0 {
		t.Fatalf("want one container, have %v", containers)
	}
	return containers[0]
}

// A program is one of the image's, built when it is first needed.
type program func() (string, error)

var (
	installer = builds("installer")
	injector  = builds("injector")
)

func builds(folder string) program {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "sidecar-cni-deployments-")
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "sidecar-cni-"+folder)
		_, err = command("go", "build", "-o", path, "../"+folder).Output()
		return path, told(err)
	})
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	for _, p := range []program{installer, injector} {
		if path, err := p(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// accept has a program read its command line and explain itself: it does not get to work.
func (p program) accept(t *testing.T, args []string) error {
	t.Helper()
	path, err := p()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := command(path, append(slices.Clone(args), "--help")...)
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return errors.New(strings.TrimSpace(said.String()))
	}
	return nil
}
