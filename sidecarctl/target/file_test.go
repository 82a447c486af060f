package target_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

var byValue = cmpopts.EquateComparable(netip.Addr{})

const running = `# as kubectl get pod -o yaml writes it
apiVersion: v1
kind: Pod
metadata:
  name: web-0
  namespace: shop
  uid: 5b0c
  creationTimestamp: 2026-01-02T03:04:05Z
  labels: {app: web}
  annotations: {sidecar.istio.io/status: "{}"}
spec:
  nodeName: node-1
  hostNetwork: true
  dnsPolicy: None
  dnsConfig: {nameservers: [10.96.0.10, "2001:db8::53"]}
  securityContext: {runAsUser: 1000, runAsGroup: 1001}
  initContainers:
  - {name: wait}
  - {name: istio-proxy, restartPolicy: Always, securityContext: {runAsUser: 1337}}
  containers:
  - name: web
    securityContext: {runAsGroup: 7}
    ports: [{name: http, containerPort: 8080}, {containerPort: 53, protocol: UDP}]
status:
  phase: Running
  podIP: 10.0.0.7
  podIPs: [{ip: 10.0.0.7}, {ip: "2001:db8::7"}]
`

func read(t *testing.T, text string) []target.Pod {
	t.Helper()
	pods, err := target.FromFile(strings.NewReader(text), "pods.yaml", target.Options{})
	if err != nil {
		t.Fatalf("%v\nin %s", err, text)
	}
	return pods
}

func TestRunningPod(t *testing.T) {
	t.Parallel()
	id := func(n int64) *int64 { return new(n) }
	addr := netip.MustParseAddr
	want := []target.Pod{{
		Name: "shop/web-0", Kind: "Pod", HostNetwork: true, Node: "node-1",
		IPs:       []netip.Addr{addr("10.0.0.7"), addr("2001:db8::7")},
		DNSPolicy: "None", DNSServers: []netip.Addr{addr("10.96.0.10"), addr("2001:db8::53")},
		UID: "5b0c", NodeUID: "5b0c",
		Facts: redirect.Pod{
			Namespace: "shop", Name: "web-0",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Spec: &redirect.Spec{
				Labels: map[string]string{"app": "web"}, RunAsUser: id(1000), RunAsGroup: id(1001),
				Containers: []redirect.Container{
					{Name: "wait", Init: true, Env: map[string]string{}},
					{Name: "istio-proxy", Init: true, Stays: true, RunAsUser: id(1337),
						Env: map[string]string{}},
					{Name: "web", RunAsGroup: id(7), Env: map[string]string{}},
				},
			},
		},
		Containers: []target.Container{
			{Name: "wait", Init: true, RunAsUser: id(1000), RunAsGroup: id(1001)},
			{Name: "istio-proxy", Init: true, Stays: true, RunAsUser: id(1337),
				RunAsGroup: id(1001)},
			{Name: "web", RunAsUser: id(1000), RunAsGroup: id(7), Ports: []target.Port{
				{Name: "http", Number: 8080, Protocol: "TCP"}, {Number: 53, Protocol: "UDP"}}},
		},
	}}
	if diff := cmp.Diff(want, read(t, running), byValue); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

const containers = `{containers: [{name: web}]}`

// What the pods of a file are called, and by which names they are decided.
func TestNames(t *testing.T) {
	t.Parallel()
	rows := []struct{ name, text, want string }{
		{"pod without a namespace", `{"kind": "Pod", "metadata": {"name": "a"},
			"spec": {"containers": [{"name": "b"}]}}`, "set/a is set/a"},
		{"pod that the API is to name", "kind: Pod\nmetadata: {generateName: a-}\nspec: " +
			containers, "set/a- is set/a-"},
		{"deployment of an old version", "apiVersion: extensions/v1beta1\nkind: Deployment\n" +
			"metadata: {name: web, namespace: shop}\nspec: {template: {spec: " + containers + "}}",
			"shop/web (Deployment) is shop/web"},
		{"template with a name", "kind: Job\nmetadata: {name: a}\nspec: {template: {metadata: " +
			"{name: b, uid: x}, spec: " + containers + "}}", "set/a (Job) is set/b"},
		{"template of a custom resource", "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\n" +
			"metadata: {name: a}\nspec: {template: {spec: " + containers + "}}",
			"set/a (Rollout) is set/a"},
		{"cron job", "kind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: {spec: {template: " +
			"{spec: " + containers + "}}}}", "set/a (CronJob) is set/a"},
		{"pod template", "kind: PodTemplate\nmetadata: {name: a}\ntemplate: {spec: " + containers +
			"}", "set/a (PodTemplate) is set/a"},
		{"status of a deployment is no pod's", "kind: Deployment\nmetadata: {name: a}\n" +
			"spec: {template: {spec: " + containers + "}}\nstatus: {phase: 7}",
			"set/a (Deployment) is set/a"},
		{"lists within lists", "kind: List\nitems:\n- kind: PodList\n  items:\n  - metadata: " +
			"{name: a}\n    spec: " + containers + "\n- kind: DeploymentList\n  items:\n  - " +
			"metadata: {name: b}\n    spec: {template: {spec: " + containers + "}}",
			"set/a is set/a, set/b (Deployment) is set/b"},
		{"output of helm", "---\n# Source: a/b.yaml\n---\n\n---\nkind: Service\nspec: {ports: []}" +
			"\n--- # c\nkind: Pod\nmetadata: {name: a}\nspec: " + containers + "\n---\n# end\n",
			"set/a is set/a"},
		{"objects of JSON one behind the other", `{"kind": "Secret"}
			{"kind": "Pod", "metadata": {"name": "a", "annotations": {"b": "\ud83d\ude00"}},
			"spec": {"containers": [{"name": "b"}]}}`, "set/a is set/a"},
		{"objects of JSON as documents of YAML", `{"kind": "Secret"}
---
{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "b"}]}}
`, "set/a is set/a"},
		{"aliases and merged keys", "kind: Pod\nmetadata: {name: a}\nspec:\n  securityContext: &s " +
			"{runAsUser: 1}\n  containers:\n  - {name: b, securityContext: {<<: *s, runAsUser: 2}}",
			"set/a is set/a"},
		{"a BOM and the line ends of Windows", "\ufeffkind: Pod\r\nmetadata: {name: a}\r\nspec: " +
			containers + "\r\n", "set/a is set/a"},
		{"control characters", `{"kind": "P\u001b[2Jod", "metadata": {"name": "a\nb\u202e"},
			"spec": {"template": {"spec": {"containers": [{"name": "b"}]}}}}`,
			`"set/a\nb\u202e" ("P\x1b[2Jod") is set/` + "a\nb\u202e"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pods, err := target.FromFile(strings.NewReader(row.text), "f",
				target.Options{Namespace: "set", DefaultNamespace: "other"})
			var got []string
			for _, p := range pods {
				got = append(got, p.Name+" is "+p.Facts.Namespace+"/"+p.Facts.Name)
				if p.UID != "" {
					t.Errorf("uid %q, want none", p.UID)
				}
			}
			if text := strings.Join(got, ", "); text != row.want || err != nil {
				t.Errorf("got  %s\nwant %s\nerror %v\nin %s", text, row.want, err, row.text)
			}
		})
	}
}

func TestNamespaceWhereNoneIsWritten(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]target.Options{
		"default/a": {}, "b/a": {DefaultNamespace: "b"}, "c/a": {Namespace: "c", DefaultNamespace: "b"},
	} {
		pods, err := target.FromFile(strings.NewReader("kind: Pod\nmetadata: {name: a}\nspec: "+
			containers), "f", o)
		if err != nil || len(pods) != 1 || pods[0].Name != want {
			t.Errorf("%+v: pods %+v, error %v; want %s", o, pods, err, want)
		}
	}
}

func TestLargeFile(t *testing.T) {
	t.Parallel()
	one := []byte("---\n" + running)
	data := bytes.Repeat(one, 2000)
	pods, err := target.FromFile(bytes.NewReader(data), "f", target.Options{})
	if len(pods) != 2000 || err != nil {
		t.Errorf("%d pods, error %v; want 2000", len(pods), err)
	}
}
