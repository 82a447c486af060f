package inject_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// The proxy of the templates of these tests, in each form.
const (
	oldProxy = `
containers:
- name: istio-proxy
  image: example.com/proxy:1
`
	todayProxy = `
spec:
  containers:
  - name: istio-proxy
    image: example.com/proxy:1
`
)

// mergeRow says what a template makes of a part of a pod, in YAML.
type mergeRow struct {
	name          string
	template, pod string
	field         []string // of the result
	want          string
}

func runMerges(t *testing.T, rows []mergeRow, form func(testing.TB, string) *config.Config) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pod := fromYAML(t, row.pod)
			if podtree.Map(pod, "spec") == nil {
				podtree.Set(pod, podtree.Object{}, "spec")
			}
			result := mustInject(t, form(t, row.template), pod)
			got, err := yaml.Marshal(podtree.Get(result.Pod, row.field...))
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if err := yaml.Unmarshal([]byte(row.want), &want); err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(text), string(got)); diff != "" {
				t.Errorf("(-want +got) %s", diff)
			}
		})
	}
}

func TestOldTemplatesAreAppended(t *testing.T) {
	t.Parallel()
	runMerges(t, []mergeRow{
		{
			"numbers and bools become texts where texts are wanted",
			"containers: [{name: istio-proxy, image: i, args: [1337, 1.5, true], env: [{name: A, value: 7}],\n" +
				"  ports: [{containerPort: 15090}], livenessProbe: {tcpSocket: {port: 99}},\n" +
				"  resources: {limits: {cpu: 2}}}]\n" +
				"podRedirectAnnot: {traffic.sidecar.istio.io/excludeOutboundPorts: 3306}",
			"spec: {}", []string{"spec", "containers"},
			`[{name: istio-proxy, image: i, args: ["1337", "1.5", "true"], env: [{name: A, value: "7"}],
			  ports: [{containerPort: 15090}], livenessProbe: {tcpSocket: {port: 99}},
			  resources: {limits: {cpu: 2}}}]`,
		},
		{
			"numbers in what a struct embeds", oldProxy + "volumes: [{name: b, secret: {secretName: 7}}]",
			"spec: {}", []string{"spec", "volumes"}, `[{name: b, secret: {secretName: "7"}}]`,
		},
		{
			"volumes", oldProxy + "volumes: [{name: b, emptyDir: {}}]",
			"spec: {volumes: [{name: a, emptyDir: {}}]}", []string{"spec", "volumes"},
			"[{name: a, emptyDir: {}}, {name: b, emptyDir: {}}]",
		},
		{
			"pull secrets once", oldProxy + "imagePullSecrets: [{name: a}, {name: b}, {name: b}]",
			"spec: {imagePullSecrets: [{name: a}]}", []string{"spec", "imagePullSecrets"},
			"[{name: a}, {name: b}]",
		},
		{
			"fsGroup where unset", oldProxy + "securityContext: {fsGroup: 1337}",
			"spec: {securityContext: {runAsUser: 5}}", []string{"spec", "securityContext"},
			"{runAsUser: 5, fsGroup: 1337}",
		},
		{
			"fsGroup where set", oldProxy + "securityContext: {fsGroup: 1337}",
			"spec: {securityContext: {fsGroup: 5}}", []string{"spec", "securityContext"},
			"{fsGroup: 5}",
		},
		{
			"fsGroup without a context", oldProxy + "securityContext: {fsGroup: 1337}",
			"spec: {}", []string{"spec", "securityContext"}, "{fsGroup: 1337}",
		},
		{
			"podRedirectAnnot", oldProxy + "podRedirectAnnot: {a/b: c}",
			"metadata: {annotations: {a/b: d, e/f: g}}", []string{"metadata", "annotations", "a/b"}, "c",
		},
		{
			"restartPolicy makes no sidecar",
			oldProxy + "  restartPolicy: Always\ninitContainers: [{name: x, image: i, restartPolicy: Always}]",
			"spec: {}", []string{"spec"},
			"{containers: [{name: istio-proxy, image: 'example.com/proxy:1'}], " +
				"initContainers: [{name: x, image: i}]}",
		},
	}, old)
}

// mergeDNS is the same for both forms.
func TestDNS(t *testing.T) {
	t.Parallel()
	const dns = `dnsConfig: {nameservers: [192.0.2.1, 192.0.2.2], searches: [a, b],
	  options: [{name: ndots, value: "5"}, {name: rotate}]}`
	rows := func(template string) []mergeRow {
		field := []string{"spec", "dnsConfig"}
		return []mergeRow{
			{
				"the pod says nothing", template, "spec: {}", field,
				`{nameservers: [192.0.2.1, 192.0.2.2], searches: [a, b],
				  options: [{name: ndots, value: "5"}, {name: rotate}]}`,
			},
			{
				"the pod comes first", template,
				`spec: {dnsConfig: {nameservers: [192.0.2.2], searches: [c, a], someday: 1,
				  options: [{name: ndots, value: "2"}]}}`, field,
				`{nameservers: [192.0.2.2, 192.0.2.1], searches: [c, a, b], someday: 1,
				  options: [{name: ndots, value: "2"}, {name: rotate}]}`,
			},
			{
				"the pod has other lists", template, "spec: {dnsConfig: {searches: [c]}}", field,
				`{nameservers: [192.0.2.1, 192.0.2.2], searches: [c, a, b],
				  options: [{name: ndots, value: "5"}, {name: rotate}]}`,
			},
		}
	}
	t.Run("old", func(t *testing.T) { t.Parallel(); runMerges(t, rows(oldProxy+dns), old) })
	t.Run("today", func(t *testing.T) {
		t.Parallel()
		runMerges(t, rows(todayProxy+"  "+dns), template)
	})
}

func TestTodaysTemplatesAreMerged(t *testing.T) {
	t.Parallel()
	runMerges(t, []mergeRow{
		{
			"labels and annotations", todayProxy + "metadata: {labels: {a: 1, b: c}, annotations: {d: true}}",
			"metadata: {labels: {a: x, z: z}}", []string{"metadata", "labels"},
			`{a: "1", b: c, z: z}`,
		},
		{
			"an empty list removes nothing", todayProxy + "  volumes:\n  initContainers:\n",
			"spec: {volumes: [{name: a, emptyDir: {}}]}", []string{"spec", "volumes"},
			"[{name: a, emptyDir: {}}]",
		},
		{
			"volumes of one name", todayProxy + "  volumes: [{name: a, emptyDir: {medium: Memory}}]",
			"spec: {volumes: [{name: z, emptyDir: {}}, {name: a, emptyDir: {}}]}", []string{"spec", "volumes"},
			"[{name: z, emptyDir: {}}, {name: a, emptyDir: {medium: Memory}}]",
		},
		{
			"fsGroup is the pod's", todayProxy + "  securityContext: {fsGroup: 1337, runAsNonRoot: true}",
			"spec: {securityContext: {fsGroup: 5}}", []string{"spec", "securityContext"},
			"{fsGroup: 5, runAsNonRoot: true}",
		},
		{
			"pull secrets", todayProxy + "  imagePullSecrets: [{name: a}, {name: b}]",
			"spec: {imagePullSecrets: [{name: a}]}", []string{"spec", "imagePullSecrets"},
			"[{name: a}, {name: b}]",
		},
		{
			"an anchor", todayProxy + "metadata: {labels: {a: &x 7, b: *x}}",
			"spec: {}", []string{"metadata", "labels"}, `{a: "7", b: "7"}`,
		},
		{
			"no directive removes a container",
			todayProxy + "  - {name: b, $patch: delete}\n  initContainers: [{$patch: replace}, {name: t, image: i}]",
			"spec: {initContainers: [{name: d, image: i, someday: 1}], containers: [{name: b, image: i}]}",
			[]string{"spec"},
			"{initContainers: [{name: d, image: i, someday: 1}, {name: t, image: i}],\n" +
				"containers: [{name: b, image: i}, {name: istio-proxy, image: 'example.com/proxy:1'}]}",
		},
		{
			"a directive", todayProxy + "  volumes: [{name: a, $patch: delete}]",
			"spec: {volumes: [{name: z, emptyDir: {}}, {name: a, emptyDir: {}}]}", []string{"spec", "volumes"},
			"[{name: z, emptyDir: {}}]",
		},
		{
			"the containers of the pod stay first and in their order",
			todayProxy + "  - {name: b, env: [{name: T, value: t}]}\n  - {name: log, image: i}",
			"spec: {containers: [{name: a, image: i, someday: {x: [1]}}, {name: b, image: j, env: [{name: O}]}]}",
			[]string{"spec", "containers"},
			"[{name: a, image: i, someday: {x: [1]}}, {name: b, image: j, env: [{name: T, value: t}, {name: O}]},\n" +
				"{name: log, image: i}, {name: istio-proxy, image: 'example.com/proxy:1'}]",
		},
	}, template)
}

// What the author of a pod wrote into a container of a template's name goes before the template.
func TestTheAuthorsProxy(t *testing.T) {
	t.Parallel()
	const proxy = `
spec:
  containers:
  - name: istio-proxy
    image: example.com/proxy:1
    args: [proxy, sidecar]
    env: [{name: A, value: a}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    ports: [{containerPort: 15090, name: http-envoy-prom}]
    readinessProbe: {httpGet: {path: /ready, port: 15021}, periodSeconds: 7}
    resources: {requests: {cpu: 1, memory: 1Gi}}
    securityContext: {runAsUser: 1337, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: v, mountPath: /v, readOnly: true}]
`
	author := func(fields string) string {
		return "spec: {containers: [{name: istio-proxy, image: auto, " + fields + "}]}"
	}
	field := func(name string) []string { return []string{"spec", "containers", name} }
	rows := []mergeRow{
		{"image auto is the template's", proxy, author(""), field("image"), "example.com/proxy:1"},
		{
			"another image", proxy, "spec: {containers: [{name: istio-proxy, image: mine}]}",
			field("image"), "mine",
		},
		{"args are replaced", proxy, author("args: [proxy, sidecar, -x]"), field("args"), "[proxy, sidecar, -x]"},
		{
			"variables by name", proxy, author("env: [{name: B, value: b}, {name: C, value: c}]"),
			field("env"), "[{name: A, value: a}, {name: B, value: b}, {name: C, value: c}]",
		},
		{
			"ports by number and protocol", proxy,
			author("ports: [{containerPort: 15090, protocol: UDP}, {containerPort: 15090, protocol: TCP}]"),
			field("ports"), "[{containerPort: 15090, protocol: TCP}, {containerPort: 15090, protocol: UDP}]",
		},
		{
			"ports by number", proxy, author("ports: [{containerPort: 15090, name: stats}, {containerPort: 1}]"),
			field("ports"), "[{containerPort: 15090, name: stats}, {containerPort: 1}]",
		},
		{
			"mounts by path", proxy, author("volumeMounts: [{name: w, mountPath: /v}]"),
			field("volumeMounts"), "[{name: w, mountPath: /v}]",
		},
		{
			"one handler of a probe", proxy, author("readinessProbe: {exec: {command: [x]}}"),
			field("readinessProbe"), "{exec: {command: [x]}, periodSeconds: 7}",
		},
		{
			"the rest of a probe", proxy, author("readinessProbe: {periodSeconds: 9}"),
			field("readinessProbe"), "{httpGet: {path: /ready, port: 15021}, periodSeconds: 9}",
		},
		{
			"resources", proxy, author("resources: {requests: {cpu: 2}, limits: {cpu: 3}}"),
			field("resources"), "{requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 3}}",
		},
		{
			"unknown fields", proxy, author("someday: {a: [{b: 1}]}, securityContext: {someday: {c: 1}}"),
			field("someday"), "{a: [{b: 1}]}",
		},
		{
			"nested unknown fields", proxy, author("securityContext: {someday: {c: 1}, runAsUser: 99}"),
			field("securityContext"), "{someday: {c: 1}, runAsUser: 99, capabilities: {drop: [ALL]}}",
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			result := mustInject(t, template(t, row.template), fromYAML(t, row.pod))
			got := container(result.Pod, "istio-proxy")[row.field[2]]
			want := fromYAML(t, "it: "+row.want)["it"]
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got) %s", diff)
			}
			if n := len(podtree.List(result.Pod, "spec", "containers")); n != 1 {
				t.Errorf("%d containers, want 1", n)
			}
		})
	}
}

func TestTemplatesByName(t *testing.T) {
	t.Parallel()
	const text = `
policy: enabled
defaultTemplates: [base]
aliases: {both: [base, more]}
templates:
  base: |
    spec: {containers: [{name: istio-proxy, image: base, args: [proxy, sidecar]}]}
  more: |
    spec: {containers: [{name: istio-proxy, image: more, env: [{name: MORE}]}]}
`
	for _, row := range []struct {
		annotation any
		image      string
		env        int
	}{
		{nil, "base", 0},
		{"base", "base", 0},
		{"more", "more", 1},
		{"base,more", "more", 1},
		{" base , more ", "more", 1},
		{"more,base", "base", 1},
		{"both", "more", 1},
	} {
		pod := app()
		if row.annotation != nil {
			podtree.Set(pod, row.annotation, "metadata", "annotations", "inject.istio.io/templates")
		}
		proxy := container(mustInject(t, load(t, text), pod).Pod, "istio-proxy")
		if proxy["image"] != row.image || len(podtree.List(proxy, "env")) != row.env {
			t.Errorf("%v: %v", row.annotation, proxy)
		}
	}
}

// The user as whom the author of a pod runs the proxy is the one whose traffic the rules know, and
// the one who checks them.
func TestTheUserOfTheAuthorsProxy(t *testing.T) {
	t.Parallel()
	const text = `
spec:
  initContainers:
  - name: istio-init
    image: i
    args: [istio-iptables, -p, 15001, -z, 15006, -u, 1337, -m, REDIRECT, -i, '*', -b, '*', -d, 15020]
  - {name: istio-validation, image: i, securityContext: {runAsUser: 1337, runAsGroup: 1337}}
  containers: [{name: istio-proxy, image: i, securityContext: {runAsUser: 1337, runAsGroup: 1337}}]
`
	const pod = `
spec:
  containers:
  - {name: app, image: i}
  - {name: istio-proxy, image: auto, securityContext: {runAsUser: 2000, runAsGroup: 3000}}
`
	result := mustInject(t, template(t, text), fromYAML(t, pod))
	want := podtree.Object{"runAsUser": int64(2000), "runAsGroup": int64(3000)}
	for _, name := range []string{"istio-proxy", "istio-validation"} {
		if diff := cmp.Diff(want, container(result.Pod, name)["securityContext"]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// Root is known by its group: the flag stays, and says the same of the rules.
	root := strings.Replace(pod, "runAsUser: 2000, runAsGroup: 3000", "runAsUser: 0, runAsGroup: 1337", 1)
	result = mustInject(t, template(t, text), fromYAML(t, root))
	if got := podtree.Get(container(result.Pod, "istio-validation"), "securityContext", "runAsUser"); got != int64(1337) {
		t.Errorf("istio-validation runs as %v", got)
	}
}
