package inject_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// shown is a template that writes an expression of its language into an annotation.
func shown(expression string) string {
	return todayProxy + "metadata: {annotations: {shown: {{ " + expression + " | quote }}}}"
}

// What templates are told of a pod and of the configuration.
func TestTemplateData(t *testing.T) {
	t.Parallel()
	settings := podtree.Object{
		"nativeSidecars": true, "revision": "canary",
		"environment": podtree.Object{"COMPLIANCE_POLICY": "fips-140-2"},
	}
	const mesh = "{trustDomain: example.org, inboundTrafficPolicy: {mode: LOCALHOST}, " +
		"defaultConfig: {concurrency: 3}}"
	for expression, want := range map[string]string{
		".TypeMeta.Kind":                  "Deployment",
		".DeploymentMeta.Name":            "web",
		".ObjectMeta.Name":                "web-1",
		".ObjectMeta.Namespace":           "shop", // where the pod will be, though it does not say so
		"(index .Spec.Containers 0).Name": "app",
		".ProxyConfig.Concurrency.Value":  "4",
		".MeshConfig.TrustDomain":         "example.org",
		".Values.global.hub":              "example.com",
		".Revision":                       "canary",
		".NativeSidecars":                 "true",
		".ProxyUID":                       "1337",
		".ProxyGID":                       "1337",
		".InboundTrafficPolicyMode":       "localhost",
		".CompliancePolicy":               "fips-140-2",
	} {
		cfg := load(t, marshal(t, podtree.Object{
			"policy": "enabled", "templates": podtree.Object{"sidecar": shown(expression)},
			"sidecarCNI": settings,
		}), mesh, "global: {hub: example.com}")
		pod := app()
		podtree.Set(pod, "web-1", "metadata", "name")
		podtree.Set(pod, "concurrency: 4", "metadata", "annotations", "proxy.istio.io/config")
		result, err := inject.Inject(cfg, inject.Request{
			Pod: pod, Namespace: "shop", Type: metav1.TypeMeta{Kind: "Deployment"},
			Workload: metav1.ObjectMeta{Name: "web"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := podtree.Get(result.Pod, "metadata", "annotations", "shown"); got != want {
			t.Errorf("%s is %q, want %q", expression, got, want)
		}
	}
	if mode := mustInject(t, template(t, shown(".InboundTrafficPolicyMode")), app()); podtree.Get(
		mode.Pod, "metadata", "annotations", "shown") != "passthrough" {
		t.Errorf("without a policy the mode is %v", mode.Pod["metadata"])
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	const image, kind = "sidecar.istio.io/proxyImage", "sidecar.istio.io/proxyImageType"
	for _, row := range []struct {
		values, mesh, key, annotation string
		proxy, init                   string
	}{
		{values: "{}", proxy: "proxyv2", init: "proxyv2"},
		{values: "{hub: h, tag: 1.5}", proxy: "h/proxyv2:1.5", init: "h/proxyv2:1.5"},
		{
			values: "{hub: h, tag: t, proxy: {image: p}, proxy_init: {image: q}}",
			proxy:  "h/p:t", init: "h/q:t",
		},
		{
			values: "{hub: h, tag: t, proxy: {image: 'r/p:u'}}", proxy: "r/p:u", init: "h/proxyv2:t",
		},
		{
			values: "{hub: h, tag: t, variant: distroless}",
			proxy:  "h/proxyv2:t-distroless", init: "h/proxyv2:t-distroless",
		},
		{
			values: "{hub: h, tag: t-debug}", mesh: "defaultConfig: {image: {imageType: distroless}}",
			proxy: "h/proxyv2:t-distroless", init: "h/proxyv2:t-debug",
		},
		{
			values: "{hub: h, tag: t, variant: distroless}", key: kind, annotation: "default",
			proxy: "h/proxyv2:t", init: "h/proxyv2:t",
		},
		{
			values: "{hub: h, tag: t}", key: image, annotation: "mine:1",
			proxy: "mine:1", init: "h/proxyv2:t",
		},
	} {
		text := shown(`printf "%s %s" .ProxyImage .ProxyInitImage`)
		cfg := load(t, marshal(t, podtree.Object{
			"policy": "enabled", "templates": podtree.Object{"sidecar": text},
		}), row.mesh, "global: "+row.values)
		pod := app()
		if row.key != "" {
			podtree.Set(pod, row.annotation, "metadata", "annotations", row.key)
		}
		got := podtree.Get(mustInject(t, cfg, pod).Pod, "metadata", "annotations", "shown")
		if want := row.proxy + " " + row.init; got != want {
			t.Errorf("%+v: %s", row, got)
		}
	}
}

// What is unknown in the pod's own configuration of its proxy is said to its author.
func TestAnUnknownKeyOfProxyConfig(t *testing.T) {
	t.Parallel()
	pod := app()
	podtree.Set(pod, "{someday: 1}", "metadata", "annotations", "proxy.istio.io/config")
	result := mustInject(t, template(t, todayProxy), pod)
	if len(result.Warnings) != 1 {
		t.Errorf("warnings: %q, want one about someday", result.Warnings)
	}
}

func TestInjectedAnnotations(t *testing.T) {
	t.Parallel()
	pod := app()
	podtree.Set(pod, "mine", "metadata", "annotations", "example.com/own")
	cfg := load(t, "policy: enabled\ninjectedAnnotations: {example.com/set: here}"+small)
	want := podtree.Object{"example.com/own": "mine", "example.com/set": "here"}
	got := podtree.Map(mustInject(t, cfg, pod).Pod, "metadata", "annotations")
	delete(got, "sidecar.istio.io/status")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
