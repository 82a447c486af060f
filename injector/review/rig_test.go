package review_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
	"github.com/sidecar-cni/sidecar-cni/injector/review"
)

const image = "registry.example/sidecar-cni:0.1.0"

// small is a template of little more than a proxy.
const small = `
sidecarCNI: {excludeNamespaces: [closed]}
templates:
  sidecar: |
    metadata:
      annotations: {workload: "{{ .TypeMeta.Kind }}/{{ .DeploymentMeta.Namespace }}/{{ .DeploymentMeta.Name }}"}
    spec:
      containers:
      - name: istio-proxy
        image: example.com/proxy:1
        args: [proxy, sidecar]
        securityContext: {runAsUser: 1337}
`

const selectors = `
neverInjectSelector:
- matchLabels: {sidecar/label: notinject}
- matchExpressions: [{key: sidecar/notinject, operator: Exists}]
alwaysInjectSelector:
- matchLabels: {sidecar/label: inject}
- matchExpressions: [{key: sidecar/inject, operator: Exists}]
`

func load(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{
		Injector: config.Source{Name: "injector", Data: []byte(text)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// rig is a Reviewer, and what it reports.
type rig struct {
	inject, strip http.Handler
	registry      *prometheus.Registry
	logged        *observer.ObservedLogs
}

// newRig returns one with a configuration; "" is none.
func newRig(t testing.TB, configuration string) *rig {
	t.Helper()
	current := func() (*config.Config, error) {
		return nil, errors.New("read ConfigMap istio-system/istio-sidecar-injector: not found")
	}
	if configuration != "" {
		cfg := load(t, configuration)
		current = func() (*config.Config, error) { return cfg, nil }
	}
	return rigOf(current)
}

func rigOf(current func() (*config.Config, error)) *rig {
	core, logged := observer.New(zapcore.DebugLevel)
	r := &rig{registry: prometheus.NewRegistry(), logged: logged}
	reviewer := review.New(review.Options{Config: current, Metrics: r.registry, Log: zap.New(core),
		Validation: &validation.Container{Image: image, PullPolicy: "IfNotPresent"}})
	r.inject, r.strip = reviewer.Inject(), reviewer.Strip()
	return r
}

// counted is how many requests were counted so, and whether no other was.
func (r *rig) counted(t testing.TB, labels string, want int) {
	t.Helper()
	const name = "sidecar_cni_injector_requests_total"
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, family := range families {
		for _, m := range family.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetName()+"="+l.GetValue())
			}
			if family.GetName() == name {
				have = append(have, strings.Join(values, " "))
				if int(m.Counter.GetValue()) != want {
					t.Errorf("%s: %v, want %d", values, m.Counter.GetValue(), want)
				}
			}
		}
	}
	if len(have) != 1 || have[0] != labels {
		t.Errorf("counted %q, want %q", have, labels)
	}
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// app is a pod as the API server sends it.
func app() podtree.Object {
	return podtree.Object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": podtree.Object{
			"generateName": "web-5d4f8c7b9-", "namespace": "shop",
			"labels": podtree.Object{"app": "web", "pod-template-hash": "5d4f8c7b9"},
			"ownerReferences": []any{podtree.Object{"apiVersion": "apps/v1", "kind": "ReplicaSet",
				"name": "web-5d4f8c7b9", "uid": "1", "controller": true}},
		},
		"spec": podtree.Object{"containers": []any{
			podtree.Object{"name": "app", "image": "example.com/app:1",
				"env": []any{podtree.Object{"name": "PASSWORD", "value": secret}}},
		}},
	}
}

// secret is what must not be in the log.
const secret = "hunter2"

// filled is a pod that another injector has filled: istio-init has these arguments.
func filled(args ...any) podtree.Object {
	pod := app()
	podtree.Set(pod, podtree.Object{"sidecar.istio.io/status": "{}"}, "metadata", "annotations")
	spec := podtree.Map(pod, "spec")
	spec["initContainers"] = []any{podtree.Object{"name": "istio-init",
		"image": "docker.io/istio/proxyv2:1.20.0", "args": args}}
	spec["containers"] = append(podtree.List(spec, "containers"), podtree.Object{
		"name": "istio-proxy", "image": "docker.io/istio/proxyv2:1.20.0",
		"securityContext": podtree.Object{"runAsUser": int64(1337), "runAsGroup": int64(1337)}})
	return pod
}

// flags are those of a usual istio-init.
var flags = []any{"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT",
	"-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020"}

func marshal(t testing.TB, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// reviewOf is what the API server sends about a pod.
func reviewOf(pod podtree.Object) podtree.Object {
	return podtree.Object{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": podtree.Object{
			"uid":         "705ab4f5-6393-11e8-b7cc-42010a800002",
			"kind":        podtree.Object{"group": "", "version": "v1", "kind": "Pod"},
			"resource":    podtree.Object{"group": "", "version": "v1", "resource": "pods"},
			"requestKind": podtree.Object{"group": "", "version": "v1", "kind": "Pod"},
			"namespace":   "shop", "operation": "CREATE", "object": pod, "oldObject": nil,
			"userInfo": podtree.Object{"username": "system:serviceaccount:kube-system:replicaset-controller"},
			"dryRun":   false, "options": podtree.Object{"kind": "CreateOptions"},
		},
	}
}

func post(h http.Handler, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/?timeout=5s", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// ask sends a pod, and returns what is said to it, and the pod as it is then.
func ask(t testing.TB, h http.Handler, pod podtree.Object) (
	*admissionv1.AdmissionResponse, podtree.Object) {
	t.Helper()
	response := decode(t, post(h, marshal(t, reviewOf(pod))))
	return response, patched(t, pod, response)
}

// decode reads an answer as the API server does.
func decode(t testing.TB, answer *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var said admissionv1.AdmissionReview
	d := json.NewDecoder(answer.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&said); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", answer.Code, err, answer.Body)
	}
	if said.APIVersion != "admission.k8s.io/v1" || said.Kind != "AdmissionReview" ||
		said.Response == nil || said.Request != nil ||
		answer.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%+v is no answer to a review", said)
	}
	return said.Response
}

func patched(t testing.TB, pod podtree.Object, r *admissionv1.AdmissionResponse) podtree.Object {
	t.Helper()
	if (r.Patch == nil) != (r.PatchType == nil) ||
		r.PatchType != nil && *r.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("patch %s of type %v", r.Patch, r.PatchType)
	}
	if r.Patch == nil {
		return pod
	}
	p, err := jsonpatch.DecodePatch(r.Patch)
	if err != nil {
		t.Fatalf("%v: %s", err, r.Patch)
	}
	text, err := p.Apply(marshal(t, pod))
	if err != nil {
		t.Fatalf("%v: %s", err, r.Patch)
	}
	after, err := podtree.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// names are those of the containers of a list.
func names(pod podtree.Object, list string) (all []string) {
	for _, item := range podtree.List(pod, "spec", list) {
		all = append(all, podtree.String(item.(podtree.Object), "name"))
	}
	return all
}
