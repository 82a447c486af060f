package inject_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

const prober = "ISTIO_KUBE_APP_PROBERS"

// probed is a configuration that rewrites probes.
func probed(t testing.TB, settings string) *config.Config {
	t.Helper()
	return load(t, "policy: enabled\n"+settings+"template: |"+
		indented("rewriteAppHTTPProbe: true"+oldProxy))
}

// What becomes of a container's probe or hook, and what the agent is told. The paths and the JSON
// are those that Istio's agent reads.
func TestProbes(t *testing.T) {
	t.Parallel()
	const ports = "ports: [{name: http, containerPort: 8080}, {containerPort: 9}]"
	for _, row := range []struct {
		name, field, probe string
		want, asked        string // "": as it was, and nothing
	}{
		{
			"httpGet", "readinessProbe",
			"{httpGet: {path: /x, port: 80}, timeoutSeconds: 3, periodSeconds: 4}",
			"{httpGet: {path: /app-health/app/readyz, port: 15020}, timeoutSeconds: 3, periodSeconds: 4}",
			`{"/app-health/app/readyz":{"httpGet":{"path":"/x","port":80},"timeoutSeconds":3}}`,
		},
		{
			"a port's name", "livenessProbe", "{httpGet: {path: /x, port: http}}",
			"{httpGet: {path: /app-health/app/livez, port: 15020}}",
			`{"/app-health/app/livez":{"httpGet":{"path":"/x","port":8080}}}`,
		},
		{
			"https stays inside", "startupProbe",
			"{httpGet: {path: /x, port: 80, scheme: HTTPS, httpHeaders: [{name: A, value: b}]}}",
			"{httpGet: {path: /app-health/app/startupz, port: 15020, scheme: HTTP, httpHeaders: [{name: A, value: b}]}}",
			`{"/app-health/app/startupz":{"httpGet":{"httpHeaders":[{"name":"A","value":"b"}],"path":"/x","port":80,"scheme":"HTTPS"}}}`,
		},
		{
			"tcpSocket", "readinessProbe", "{tcpSocket: {port: http}, timeoutSeconds: 2}",
			"{httpGet: {path: /app-health/app/readyz, port: 15020}, timeoutSeconds: 2}",
			`{"/app-health/app/readyz":{"tcpSocket":{"port":8080},"timeoutSeconds":2}}`,
		},
		{
			"grpc", "livenessProbe", "{grpc: {port: 7, service: s}}",
			"{httpGet: {path: /app-health/app/livez, port: 15020}}",
			`{"/app-health/app/livez":{"grpc":{"port":7,"service":"s"}}}`,
		},
		{
			"preStop", "lifecycle", "{preStop: {httpGet: {path: /x, port: 80}}}",
			"{preStop: {httpGet: {path: /app-lifecycle/app/prestopz, port: 15020}}}",
			`{"/app-lifecycle/app/prestopz":{"httpGet":{"path":"/x","port":80}}}`,
		},
		{
			"postStart", "lifecycle", "{postStart: {tcpSocket: {port: 80}}}",
			"{postStart: {httpGet: {path: /app-lifecycle/app/poststartz, port: 15020}}}",
			`{"/app-lifecycle/app/poststartz":{"tcpSocket":{"port":80}}}`,
		},
		{"exec", "readinessProbe", "{exec: {command: [x]}}", "", ""},
		{"sleep", "lifecycle", "{preStop: {sleep: {seconds: 1}}}", "", ""},
		{"the agent's own port", "readinessProbe", "{httpGet: {path: /x, port: 15020}}", "", ""},
		{"another host", "readinessProbe", "{httpGet: {path: /x, port: 80, host: 192.0.2.1}}", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := fromYAML(t, "spec: {containers: [{name: app, image: i, "+ports+", "+row.field+": "+row.probe+"}]}")
			result := mustInject(t, probed(t, ""), pod)
			if row.want == "" {
				row.want = row.probe
			}
			want := fromYAML(t, row.want)
			if diff := cmp.Diff(want, container(result.Pod, "app")[row.field]); diff != "" {
				t.Errorf("(-want +got) %s", diff)
			}
			if got := variable(result.Pod, prober); got != row.asked {
				t.Errorf("%s: %s\nwant %s", prober, got, row.asked)
			}
			if len(result.Warnings) > 0 {
				t.Errorf("warnings: %q", result.Warnings)
			}
		})
	}
}

// variable returns a variable of the proxy; "" if there is none.
func variable(pod podtree.Object, name string) string {
	env := podtree.List(container(pod, "istio-proxy"), "env")
	if at := podtree.Named(env, name); at >= 0 {
		return podtree.String(env[at].(podtree.Object), "value")
	}
	return ""
}

const asked = `
spec:
  containers: [{name: app, image: i, readinessProbe: {httpGet: {path: /x, port: 80}}}]
`

func TestWhoWantsProbesRewritten(t *testing.T) {
	t.Parallel()
	const on, off = "sidecarCNI: {rewriteProbes: true}\n", "sidecarCNI: {rewriteProbes: false}\n"
	const values = "sidecarInjectorWebhook: {rewriteAppHTTPProbe: true}"
	for _, row := range []struct {
		template, settings, values, annotation string
		want                                   bool
	}{
		{want: false},
		{template: "rewriteAppHTTPProbe: true", want: true},
		{template: "rewriteAppHTTPProbe: false", values: values, want: false},
		{values: values, want: true},
		{template: "rewriteAppHTTPProbe: true", settings: off, want: false},
		{values: values, settings: off, want: false},
		{settings: on, want: true},
		{settings: on, annotation: "false", want: false},
		{settings: off, annotation: "true", want: true},
		{settings: on, annotation: "perhaps", want: true},
		{settings: off, annotation: "perhaps", want: false},
	} {
		cfg := load(t, "policy: enabled\n"+row.settings+"template: |"+indented(row.template+oldProxy),
			"", row.values)
		pod := fromYAML(t, asked)
		if row.annotation != "" {
			podtree.Set(pod, row.annotation, "metadata", "annotations",
				"sidecar.istio.io/rewriteAppHTTPProbers")
		}
		if got := variable(mustInject(t, cfg, pod).Pod, prober) != ""; got != row.want {
			t.Errorf("%+v: rewritten: %v", row, got)
		}
	}
}

func TestTheStatusPort(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args, annotation, mesh string
		want                   int64 // 0: none
	}{
		{want: 15020},
		{mesh: "defaultConfig: {statusPort: 15021}", want: 15021},
		{mesh: "defaultConfig: {statusPort: 15021}", annotation: "15022", want: 15022},
		{annotation: "15022", args: "--statusPort, '15023'", want: 15023},
		{args: "--statusPort=15023", want: 15023},
		{args: "--statusPort, 15023, --statusPort=15024", want: 15024},
		{annotation: "0"},
		{args: "--statusPort, '0'"},
		{args: "--statusPort=$(PORT)"},
	} {
		text := "rewriteAppHTTPProbe: true" + oldProxy + "  args: [proxy, sidecar, " + row.args + "]"
		cfg := load(t, "policy: enabled\ntemplate: |"+indented(text), row.mesh)
		pod := fromYAML(t, asked)
		if row.annotation != "" {
			podtree.Set(pod, row.annotation, "metadata", "annotations", "status.sidecar.istio.io/port")
		}
		result := mustInject(t, cfg, pod)
		probe := podtree.Map(container(result.Pod, "app"), "readinessProbe", "httpGet")
		if row.want == 0 {
			if probe["port"] != int64(80) || len(result.Warnings) != 1 ||
				!strings.Contains(result.Warnings[0], "no status port") {
				t.Errorf("%+v: %v, warnings %q", row, probe, result.Warnings)
			}
			continue
		}
		if probe["port"] != row.want || len(result.Warnings) > 0 {
			t.Errorf("%+v: %v, warnings %q", row, probe, result.Warnings)
		}
	}
}

// The agent would not know which port is meant, and the kubelet does not either.
func TestAPortThatTheContainerDoesNotHave(t *testing.T) {
	t.Parallel()
	const pod = "spec: {containers: [{name: app, image: i, livenessProbe: {tcpSocket: {port: web}}}]}"
	result := mustInject(t, probed(t, ""), fromYAML(t, pod))
	want := []string{`container "app": livenessProbe names the port "web", which the container does ` +
		"not have; it stays as it is"}
	if diff := cmp.Diff(want, result.Warnings); diff != "" {
		t.Error(diff)
	}
	if variable(result.Pod, prober) != "" {
		t.Error("the agent is told of it")
	}
}

// A native sidecar that starts before the proxy would wait for an agent that waits for it.
func TestProbesOfInitContainers(t *testing.T) {
	t.Parallel()
	const pod = `
metadata: {annotations: {sidecar-cni.io/initContainers: ""}}
spec:
  initContainers:
  - {name: early, image: i, restartPolicy: Always, startupProbe: {tcpSocket: {port: 80}}}
  - {name: quiet, image: i, restartPolicy: Always, startupProbe: {exec: {command: [x]}}}
  containers: [{name: app, image: i}]
`
	t.Run("before the proxy", func(t *testing.T) {
		t.Parallel()
		result := mustInject(t, probed(t, ""), fromYAML(t, pod))
		if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], `container "early"`) {
			t.Errorf("warnings: %q", result.Warnings)
		}
		if got := variable(result.Pod, prober); got != "" {
			t.Errorf("rewritten: %s", got)
		}
	})
	t.Run("behind a native sidecar", func(t *testing.T) {
		t.Parallel()
		result := mustInject(t, probed(t, "sidecarCNI: {nativeSidecars: true}\n"), fromYAML(t, pod))
		const want = `{"/app-health/early/startupz":{"tcpSocket":{"port":80}}}`
		if got := variable(result.Pod, prober); got != want || len(result.Warnings) > 0 {
			t.Errorf("%s, warnings %q; want %s", got, result.Warnings, want)
		}
	})
}

// The proxy's own probe is not for its agent to ask.
func TestTheProxysProbeStays(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled\ntemplate: |"+indented("rewriteAppHTTPProbe: true"+oldProxy+
		"  readinessProbe: {httpGet: {path: /ready, port: 15021}}\n"+
		"  env: [{name: "+prober+", value: old}]"))
	result := mustInject(t, cfg, fromYAML(t, asked))
	proxy := container(result.Pod, "istio-proxy")
	if got := podtree.Get(proxy, "readinessProbe", "httpGet", "port"); got != int64(15021) {
		t.Errorf("its port is %v", got)
	}
	if n := len(podtree.List(proxy, "env")); n != 1 || variable(result.Pod, prober) == "old" {
		t.Errorf("%v: want one %s, of this pod", proxy["env"], prober)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	const text = `
policy: enabled
sidecarCNI: {revision: canary}
template: |
  initContainers:
  - {name: istio-init, image: i, args: [-p, 15001, -z, 15006, -u, 1337, -m, REDIRECT, -i, '*', -b, '*', -d, 15020]}
  - {name: istio-validation, image: i}
  containers:
  - {name: istio-proxy, image: i}
  volumes: [{name: certs, emptyDir: {}}]
  imagePullSecrets: [{name: mine}, {name: theirs}]
`
	pod := app()
	podtree.Set(pod, []any{podtree.Object{"name": "theirs"}}, "spec", "imagePullSecrets")
	cfg := load(t, text)
	result := mustInject(t, cfg, pod)
	want := fmt.Sprintf(`{"version":%q,"initContainers":["istio-validation"],`+
		`"containers":["istio-proxy"],"volumes":["certs"],"imagePullSecrets":["mine"],`+
		`"revision":"canary"}`, cfg.Version)
	if got := podtree.String(result.Pod, "metadata", "annotations", "sidecar.istio.io/status"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Twice is once, and the same is the same, byte for byte.
func TestTwiceIsOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*config.Config{"istio 1.1": istio11(t), "today": today(t)} {
		first := mustInject(t, cfg, app())
		one, err := json.Marshal(first.Pod)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if again := marshal(t, mustInject(t, cfg, app()).Pod); again != string(one) {
				t.Fatalf("%s: %s\nand %s", name, one, again)
			}
		}
		again, err := podtree.Decode(one)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustNotInject(t, cfg, again); got != string(one) {
			t.Errorf("%s: injected again: %s", name, got)
		}
	}
}
