package injection_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/deployments/chart/injection"
	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// setup is how a test differs from what is delivered.
type setup struct {
	values      map[string]any // by path, such as global.proxy.image
	annotations map[string]any // of the pod
	ordinary    bool           // the proxy is no native sidecar
	mesh        string         // in place of the mesh configuration
}

func (s setup) inject(t *testing.T) (inject.Result, error) {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal(injection.Values, &values); err != nil {
		t.Fatal(err)
	}
	for path, value := range s.values {
		keys := strings.Split(path, ".")
		if podtree.Get(values, keys...) == nil {
			t.Errorf("values.yaml has no %s", path)
		}
		podtree.Set(values, value, keys...)
	}
	changed, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	mesh := string(injection.Mesh)
	if s.mesh != "" {
		mesh = s.mesh
	}
	text := string(injection.Config)
	if s.ordinary {
		text = strings.Replace(text, "nativeSidecars: true", "nativeSidecars: false", 1)
	}
	cfg, err := config.Load(config.Sources{
		Injector: config.Source{Name: "config.yaml", Data: []byte(text)},
		Mesh:     config.Source{Name: "mesh.yaml", Data: []byte(mesh)},
		Values:   config.Source{Name: "values.yaml", Data: changed},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Warnings) > 0 {
		t.Errorf("warnings at load: %q", cfg.Warnings)
	}
	pod := podtree.Object{
		"metadata": podtree.Object{"name": "web", "labels": podtree.Object{"app": "web"}},
		"spec": podtree.Object{
			"initContainers": []any{podtree.Object{"name": "migrate", "image": "migrate"}},
			"containers": []any{podtree.Object{"name": "app", "image": "app",
				"securityContext": podtree.Object{"runAsUser": int64(1000)},
				"readinessProbe": podtree.Object{
					"httpGet": podtree.Object{"path": "/up", "port": int64(8080)}}}},
		},
	}
	if s.annotations != nil {
		podtree.Set(pod, s.annotations, "metadata", "annotations")
	}
	return inject.Inject(cfg, inject.Request{Pod: pod, Namespace: "shop",
		Type: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
}

// injected are a pod and its proxy, as the API reads them.
type injected struct {
	pod   corev1.Pod
	proxy corev1.Container
}

func (s setup) pod(t *testing.T) injected {
	t.Helper()
	result, err := s.inject(t)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Decision.Inject {
		t.Fatalf("not injected: %+v", result.Decision)
	}
	var i injected
	if err := podtree.Into(result.Pod, &i.pod); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(i.pod.Spec.InitContainers, i.pod.Spec.Containers...) {
		if c.Name == "istio-proxy" {
			i.proxy = c
		}
	}
	return i
}

// TestEachSettingCounts changes one thing at a time and looks where it arrives.
func TestEachSettingCounts(t *testing.T) {
	t.Parallel()
	image := func(i injected) any { return i.proxy.Image }
	cpu := func(l func(corev1.ResourceRequirements) corev1.ResourceList) func(injected) any {
		return func(i injected) any { list := l(i.proxy.Resources); return list.Cpu().String() }
	}
	memory := func(l func(corev1.ResourceRequirements) corev1.ResourceList) func(injected) any {
		return func(i injected) any { list := l(i.proxy.Resources); return list.Memory().String() }
	}
	requests := func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }
	limits := func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }
	value := func(path string, v any) setup { return setup{values: map[string]any{path: v}} }
	annotation := func(key, v string) setup {
		return setup{annotations: map[string]any{"sidecar.istio.io/" + key: v}}
	}
	const hostile = "x\"\n  securityContext: {privileged: true} # {{ fail }}"
	rows := []struct {
		name      string
		set       setup
		get       func(injected) any
		otherwise any
		want      any
	}{
		{"image", value("global.proxy.image", "mine"), image,
			"example.com/transparent-proxy:1.0", "mine"},
		{"image of a pod", annotation("proxyImage", "its"), image,
			"example.com/transparent-proxy:1.0", "its"},
		{"an annotation stays one value", annotation("proxyImage", hostile), image,
			"example.com/transparent-proxy:1.0", hostile},
		{"pull policy", value("global.imagePullPolicy", "Never"),
			func(i injected) any { return i.proxy.ImagePullPolicy }, corev1.PullIfNotPresent,
			corev1.PullNever},
		{"pull secrets", value("global.imagePullSecrets", []any{"a", "b"}),
			func(i injected) any { return i.pod.Spec.ImagePullSecrets },
			[]corev1.LocalObjectReference(nil),
			[]corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}},
		{"arguments", value("global.proxy.args", []any{"-c", "- a: b"}),
			func(i injected) any { return i.proxy.Args }, []string(nil), []string{"-c", "- a: b"}},
		{"variables", value("global.proxy.env", []any{podtree.Object{"name": "N", "value": "v"}}),
			func(i injected) any { return i.proxy.Env }, []corev1.EnvVar(nil),
			[]corev1.EnvVar{{Name: "N", Value: "v"}}},
		{"configuration", value("global.proxy.configMap", "settings"), mounts,
			"empty at /tmp", "empty at /tmp, settings at /etc/proxy to be read"},
		{"path of readiness", value("global.proxy.readiness.path", "/up"),
			func(i injected) any { return i.proxy.ReadinessProbe.HTTPGet.Path }, "/healthz/ready",
			"/up"},
		{"port of readiness", value("global.proxy.readiness.port", 15020),
			func(i injected) any { return i.proxy.ReadinessProbe.HTTPGet.Port },
			intstr.FromInt32(15021), intstr.FromInt32(15020)},
		{"requested CPU", value("global.proxy.resources.requests.cpu", "1"), cpu(requests), "10m",
			"1"},
		{"requested memory", value("global.proxy.resources.requests.memory", "1Mi"),
			memory(requests), "40Mi", "1Mi"},
		{"limit of CPU", value("global.proxy.resources.limits.cpu", "1"), cpu(limits), "2", "1"},
		{"limit of memory", value("global.proxy.resources.limits.memory", "1Mi"), memory(limits),
			"1Gi", "1Mi"},
		{"requested CPU of a pod", annotation("proxyCPU", "1"), cpu(requests), "10m", "1"},
		{"requested memory of a pod", annotation("proxyMemory", "1Mi"), memory(requests), "40Mi",
			"1Mi"},
		{"limit of CPU of a pod", annotation("proxyCPULimit", "1"), cpu(limits), "2", "1"},
		{"limit of memory of a pod", annotation("proxyMemoryLimit", "1Mi"), memory(limits), "1Gi",
			"1Mi"},
		{"probes of the app", value("sidecarInjectorWebhook.rewriteAppHTTPProbe", true), probe, "/up",
			"/app-health/app/readyz"},
		{"no limit of CPU", value("global.proxy.resources.limits.cpu", ""), cpu(limits), "2", "0"},
		{"mode of the mesh", setup{mesh: "defaultConfig: {interceptionMode: NONE}"}, mode,
			"REDIRECT", "NONE"},
		{"mode of a pod", annotation("interceptionMode", "NONE"), mode, "REDIRECT", "NONE"},
		{"no native sidecar", setup{ordinary: true}, order, "istio-proxy migrate app ",
			"migrate app istio-proxy "},
		{"start of no native sidecar", setup{ordinary: true}, startupLimit, int32(600), "none"},
	}
	changed := map[string]bool{}
	for _, tt := range rows {
		for path := range tt.set.values {
			changed[path] = true
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.otherwise, tt.get(setup{}.pod(t))); diff != "" {
				t.Errorf("as delivered (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, tt.get(tt.set.pod(t))); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
	var values map[string]any
	if err := yaml.Unmarshal(injection.Values, &values); err != nil {
		t.Fatal(err)
	}
	for _, path := range leaves("", values) {
		if !changed[path] {
			t.Errorf("no row changes %s of values.yaml", path)
		}
	}
}

// leaves are the paths of all values that are no objects.
func leaves(prefix string, values map[string]any) (paths []string) {
	for key, value := range values {
		if object, ok := value.(map[string]any); ok {
			paths = append(paths, leaves(prefix+key+".", object)...)
		} else {
			paths = append(paths, prefix+key)
		}
	}
	return paths
}

func probe(i injected) any {
	for _, c := range i.pod.Spec.Containers {
		if c.Name == "app" {
			return c.ReadinessProbe.HTTPGet.Path
		}
	}
	return nil
}

func mode(i injected) any { return i.pod.Annotations["sidecar.istio.io/interceptionMode"] }

func order(i injected) any {
	names := ""
	for _, c := range append(i.pod.Spec.InitContainers, i.pod.Spec.Containers...) {
		names += c.Name + " "
	}
	return names
}

// mounts says what the proxy finds where.
func mounts(i injected) any {
	sources := map[string]string{}
	for _, v := range i.pod.Spec.Volumes {
		switch {
		case v.EmptyDir != nil:
			sources[v.Name] = "empty"
		case v.ConfigMap != nil:
			sources[v.Name] = v.ConfigMap.Name
		}
	}
	var all []string
	for _, m := range i.proxy.VolumeMounts {
		text := sources[m.Name] + " at " + m.MountPath
		if m.ReadOnly {
			text += " to be read"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// startupLimit is how many seconds the pod's other containers wait for the proxy.
func startupLimit(i injected) any {
	if i.proxy.StartupProbe == nil {
		return "none"
	}
	return i.proxy.StartupProbe.PeriodSeconds * i.proxy.StartupProbe.FailureThreshold
}

// TestProxyHasNoRights holds what Pod Security restricted asks of a container. The suite on a real
// cluster has the API server check it.
func TestProxyHasNoRights(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{"native": {}, "ordinary": {ordinary: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := s.pod(t)
			want := &corev1.SecurityContext{
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				Privileged:               new(false),
				RunAsUser:                new(int64(1337)),
				RunAsGroup:               new(int64(1337)),
				RunAsNonRoot:             new(true),
				ReadOnlyRootFilesystem:   new(true),
				AllowPrivilegeEscalation: new(false),
				SeccompProfile: &corev1.SeccompProfile{
					Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			if diff := cmp.Diff(want, i.proxy.SecurityContext); diff != "" {
				t.Errorf("the proxy's (-want +got):\n%s", diff)
			}
			if strings.Contains(order(i).(string), "istio-init") {
				t.Errorf("containers %s", order(i))
			}
		})
	}
}

// TestRefusals: TPROXY would start without a network, since the proxy lacks the rights.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const mode = "set sidecar.istio.io/interceptionMode to REDIRECT"
	for name, tt := range map[string]struct {
		set  setup
		want string
	}{
		"TPROXY of a pod": {setup{annotations: map[string]any{
			"sidecar.istio.io/interceptionMode": "TPROXY"}}, mode},
		"TPROXY of the mesh": {setup{mesh: "defaultConfig: {interceptionMode: TPROXY}"}, mode},
		"no image": {setup{values: map[string]any{"global.proxy.image": ""}},
			"set global.proxy.image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := tt.set.inject(t); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
