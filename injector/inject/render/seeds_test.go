package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

func TestSnippetOfSeed001(t *testing.T) {
	t.Parallel()
	data := sample(t)
	config, err := mesh.Parse([]byte("defaultConfig: {configPath: /etc/istio/proxy}"))
	if err != nil {
		t.Fatal(err)
	}
	data.ProxyConfig = config.DefaultConfig
	// The blanks in front of the last end stay behind.
	got := mustExecute(t, string(read(t, "seed-001.tmpl")), Seeds, data)
	if diff := cmp.Diff(string(read(t, "seed-001.yaml"))+"  ", got); diff != "" {
		t.Error(diff)
	}
	delete(data.ObjectMeta.Labels, "app")
	got = mustExecute(t, string(read(t, "seed-001.tmpl")), Seeds, data)
	if want := "--serviceCluster\n  - \"istio-proxy\"\n  "; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}

// decode reads what a template yields.
func decode(t *testing.T, text string) podtree.Object {
	t.Helper()
	var tree podtree.Object
	if err := yaml.UnmarshalStrict([]byte(text), &tree); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return tree
}

// container returns the container of that name as text: each list is joined by blanks.
func container(t *testing.T, tree podtree.Object, list, name string) podtree.Object {
	t.Helper()
	containers := podtree.List(tree, strings.Split(list, ".")...)
	i := podtree.Named(containers, name)
	if i < 0 {
		return nil
	}
	return containers[i].(podtree.Object)
}

// words are the items of a list as text.
func words(list []any) string {
	var items []string
	for _, item := range list {
		items = append(items, fmt.Sprintf("%q", fmt.Sprint(item)))
	}
	return strings.Join(items, " ")
}

// seedsPod renders Istio 1.1's template.
func seedsPod(t *testing.T, change func(*Data)) podtree.Object {
	t.Helper()
	data := sample(t)
	change(&data)
	old, _ := configured(t, "istio-1.1.yaml")
	return decode(t, mustExecute(t, old, Seeds, data))
}

func annotate(name, value string) func(*Data) {
	return func(d *Data) { d.ObjectMeta.Annotations[name] = value }
}

func TestSeedsTemplateOfAPlainPod(t *testing.T) {
	t.Parallel()
	pod := seedsPod(t, func(*Data) {})
	init := container(t, pod, "initContainers", "istio-init")
	proxy := container(t, pod, "containers", "istio-proxy")
	mode := podtree.List(proxy, "env")[podtree.Named(podtree.List(proxy, "env"),
		"ISTIO_META_INTERCEPTION_MODE")]
	got := map[string]any{
		"init":     words(podtree.List(init, "args")),
		"image":    proxy["image"],
		"restart":  []any{init["restartPolicy"], proxy["restartPolicy"]},
		"mode":     mode.(podtree.Object)["value"],
		"probe":    podtree.Get(proxy, "readinessProbe", "httpGet", "port"),
		"security": proxy["securityContext"],
		"volumes":  pod["volumes"],
		"rewrite":  pod["rewriteAppHTTPProbe"],
	}
	want := map[string]any{
		"init": `"-p" "15001" "-u" "1337" "-m" "REDIRECT" "-i" "*" "-x" "" "-b" "80,8443" ` +
			`"-d" "15020"`,
		"image":    "docker.io/istio/proxyv2:1.1.0",
		"restart":  []any{"Always", "Always"},
		"mode":     "REDIRECT",
		"probe":    float64(15020),
		"security": podtree.Object{"readOnlyRootFilesystem": true, "runAsUser": float64(1337)},
		"volumes": []any{
			podtree.Object{"name": "istio-envoy",
				"emptyDir": podtree.Object{"medium": "Memory"}},
			podtree.Object{"name": "istio-certs",
				"secret": podtree.Object{"optional": true, "secretName": "istio.sleeper"}},
		},
		"rewrite": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantArgs := `"proxy" "sidecar" "--domain" "$(POD_NAMESPACE).svc.cluster.local" ` +
		`"--configPath" "./etc/istio/proxy" "--binaryPath" "/usr/local/bin/envoy" ` +
		`"--serviceCluster" "sleep.$(POD_NAMESPACE)" "--drainDuration" "45s" ` +
		`"--parentShutdownDuration" "1m0s" "--discoveryAddress" ` +
		`"istiod.istio-system.svc:15012" "--connectTimeout" "10s" "--proxyAdminPort" "15000" ` +
		`"--concurrency" "2" "--controlPlaneAuthPolicy" "MUTUAL_TLS" "--statusPort" "15020" ` +
		`"--applicationPorts" "80,8443"`
	if diff := cmp.Diff(wantArgs, words(podtree.List(proxy, "args"))); diff != "" {
		t.Error(diff)
	}
}

func TestSeedsTemplateObeysThePod(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Data)
		want   []string // all of them are in the pod's YAML
		absent []string
	}{
		{"proxyImage", annotate("sidecar.istio.io/proxyImage", "mine:1"),
			[]string{"image: mine:1\n"}, []string{"proxyv2"}},
		{"status port", annotate("status.sidecar.istio.io/port", "15999"),
			[]string{"port: 15999\n", "- --statusPort\n  - \"15999\"\n", "- -d\n  - \"15999\"\n"},
			[]string{"15020"}},
		{"no status port", annotate("status.sidecar.istio.io/port", "0"),
			[]string{"- -d\n  - \"\"\n"}, []string{"15020", "readinessProbe", "applicationPorts"}},
		{"TPROXY", annotate("sidecar.istio.io/interceptionMode", "TPROXY"),
			[]string{"- -m\n  - TPROXY\n", "value: TPROXY\n", "runAsGroup: 1337\n"},
			[]string{"runAsUser: 1337"}},
		{"NONE is without istio-init", annotate("sidecar.istio.io/interceptionMode", "NONE"),
			[]string{"initContainers: null\n", "value: NONE\n"}, []string{"istio-init"}},
		{"NONE by the mesh", func(d *Data) {
			config, err := d.ProxyConfig.With("interceptionMode: NONE")
			if err != nil {
				t.Error(err)
			}
			d.ProxyConfig = config
		}, []string{"value: NONE\n"}, []string{"istio-init"}},
		{"ports that are listed",
			annotate("traffic.sidecar.istio.io/includeInboundPorts", "1,2"),
			[]string{"- -b\n  - 1,2\n"}, nil},
		{"networks that are listed",
			annotate("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0/8"),
			[]string{"- -i\n  - 10.0.0.0/8\n"}, nil},
		{"outbound ports that are left out",
			annotate("traffic.sidecar.istio.io/excludeOutboundPorts", "25"),
			[]string{"- -o\n  - \"25\"\n"}, nil},
		{"interfaces of virtual machines",
			annotate("traffic.sidecar.istio.io/kubevirtInterfaces", "net1"),
			[]string{"- -k\n  - net1\n"}, nil},
		{"no service account", func(d *Data) { d.Spec.ServiceAccountName = "" },
			[]string{"secretName: istio.default\n"}, nil},
		{"no label app", func(d *Data) { delete(d.ObjectMeta.Labels, "app") },
			[]string{"- sleep.shop\n"}, []string{"sleep.$(POD_NAMESPACE)"}},
		{"no ports", func(d *Data) { d.Spec.Containers = []corev1.Container{{Name: "a"}} },
			[]string{"- -b\n  - \"\"\n", "- --applicationPorts\n  - \"\"\n"}, nil},
		{"no concurrency", func(d *Data) { d.ProxyConfig.ProxyConfig.Concurrency = nil },
			nil, []string{"--concurrency"}},
		{"a volume of the user", func(d *Data) {
			annotate("sidecar.istio.io/userVolume", `{"v":{"emptyDir":{"medium":""}}}`)(d)
			annotate("sidecar.istio.io/userVolumeMount", `{"v":{"mountPath":"/v"}}`)(d)
		}, []string{"- emptyDir:\n    medium: \"\"\n  name: v\n", "- mountPath: /v\n    name: v\n"},
			nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// Rendered, read and written again, so that only what YAML means counts.
			text, err := yaml.Marshal(seedsPod(t, test.change))
			if err != nil {
				t.Fatal(err)
			}
			// Annotations are in the text as well, as the value of a variable.
			shown, _, _ := strings.Cut(string(text), "name: ISTIO_METAJSON_ANNOTATIONS")
			_, rest, _ := strings.Cut(string(text), "name: ISTIO_METAJSON_LABELS")
			shown += rest
			for _, want := range test.want {
				if !strings.Contains(indentation(shown), indentation(want)) {
					t.Errorf("want %q in\n%s", want, shown)
				}
			}
			for _, absent := range test.absent {
				if strings.Contains(shown, absent) {
					t.Errorf("want no %q in\n%s", absent, shown)
				}
			}
		})
	}
}

// indentation takes the blanks off all lines.
func indentation(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

func TestTodaysTemplate(t *testing.T) {
	t.Parallel()
	_, templates := configured(t, "today.yaml")
	tests := []struct {
		name   string
		change func(*Data)
		init   string // args of istio-init; empty: there is none
		list   string // where the proxy is
		user   any    // that it runs as
	}{
		{"a plain pod", func(*Data) {}, `"istio-iptables" "-p" "15001" "-z" "15006" "-u" "1337" ` +
			`"-m" "REDIRECT" "-i" "*" "-x" "" "-b" "*" "-d" "15090,15021,15020"`,
			"spec.containers", float64(1337)},
		{"a native sidecar", func(d *Data) { d.NativeSidecars = true },
			`"istio-iptables" "-p" "15001" "-z" "15006" "-u" "1337" "-m" "REDIRECT" "-i" "*" ` +
				`"-x" "" "-b" "*" "-d" "15090,15021,15020"`,
			"spec.initContainers", float64(1337)},
		{"TPROXY and interfaces", func(d *Data) {
			annotate("sidecar.istio.io/interceptionMode", "TPROXY")(d)
			annotate("traffic.sidecar.istio.io/excludeInterfaces", "eth1")(d)
		}, `"istio-iptables" "-p" "15001" "-z" "15006" "-u" "1337" "-m" "TPROXY" "-i" "*" ` +
			`"-x" "" "-b" "*" "-d" "15090,15021,15020" "-c" "eth1"`,
			"spec.containers", float64(0)},
		{"NONE", annotate("sidecar.istio.io/interceptionMode", "NONE"), "", "spec.containers",
			float64(1337)},
		{"NONE and native", func(d *Data) {
			annotate("sidecar.istio.io/interceptionMode", "NONE")(d)
			d.NativeSidecars = true
		}, "", "spec.initContainers", float64(1337)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := sample(t)
			test.change(&data)
			pod := decode(t, mustExecute(t, templates["sidecar"], Today, data))
			init := container(t, pod, "spec.initContainers", "istio-init")
			if diff := cmp.Diff(test.init, words(podtree.List(init, "args"))); diff != "" {
				t.Error(diff)
			}
			proxy := container(t, pod, test.list, "istio-proxy")
			if got := podtree.Get(proxy, "securityContext", "runAsUser"); got != test.user {
				t.Errorf("the proxy runs as %v, want %v", got, test.user)
			}
			if got, want := proxy["restartPolicy"] == "Always", data.NativeSidecars; got != want {
				t.Errorf("the proxy restarts always: %v, want %v", got, want)
			}
		})
	}
}
