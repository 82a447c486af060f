package review_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// The table of seed 004: policy, whether neverInjectSelector and alwaysInjectSelector match, the
// annotation, whether the pod is injected, and the reason.
//
//nolint:dupword // two columns of a row may say the same
const seedTable = `
enabled  match match true  yes annotation_true
enabled  match other true  yes annotation_true
enabled  other match true  yes annotation_true
enabled  other other true  yes annotation_true
enabled  match match false no  annotation_false
enabled  match other false no  annotation_false
enabled  other match false no  annotation_false
enabled  other other false no  annotation_false
enabled  match match -     no  never_selector
enabled  match other -     no  never_selector
enabled  other match -     yes always_selector
enabled  other other -     yes policy_enabled
disabled match match true  yes annotation_true
disabled match other true  yes annotation_true
disabled other match true  yes annotation_true
disabled other other true  yes annotation_true
disabled match match false no  annotation_false
disabled match other false no  annotation_false
disabled other match false no  annotation_false
disabled other other false no  annotation_false
disabled match match -     no  never_selector
disabled match other -     no  never_selector
disabled other match -     yes always_selector
disabled other other -     no  policy_disabled
`

func TestTheSeedsTable(t *testing.T) {
	t.Parallel()
	rows := strings.Split(strings.TrimSpace(seedTable), "\n")
	if len(rows) != 24 {
		t.Fatalf("%d rows, want the seed's 24", len(rows))
	}
	for _, row := range rows {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			f := strings.Fields(row)
			pod := app()
			for i, label := range []string{"sidecar/notinject", "sidecar/inject"} {
				if f[1+i] == "match" {
					podtree.Set(pod, "on", "metadata", "labels", label)
				}
			}
			if f[3] != "-" {
				podtree.Set(pod, f[3], "metadata", "annotations", "sidecar.istio.io/inject")
			}
			r := newRig(t, "policy: "+f[0]+selectors+small)
			said, after := ask(t, r.inject, pod)
			outcome := "unchanged"
			if f[4] == "yes" {
				outcome = "injected"
			}
			proxy := slices.Contains(names(after, "containers"), "istio-proxy")
			if !said.Allowed || len(said.Warnings) > 0 || proxy != (f[4] == "yes") ||
				(said.Patch != nil) != proxy {
				t.Errorf("%+v, proxy: %v", said, proxy)
			}
			r.counted(t, "outcome="+outcome+" reason="+f[5]+" webhook=inject", 1)
		})
	}
}

func TestAPodIsInjected(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: enabled"+small)
	pod := app()
	// More than a float64 can have exactly.
	podtree.Set(podtree.List(pod, "spec", "containers")[0].(podtree.Object), int64(9007199254740993),
		"securityContext", "runAsUser")
	said, after := ask(t, r.inject, pod)
	if !said.Allowed || said.Result != nil || said.UID != "705ab4f5-6393-11e8-b7cc-42010a800002" {
		t.Errorf("%+v: want it allowed, for the same uid", said)
	}
	if diff := cmp.Diff([]string{"istio-validation"}, names(after, "initContainers")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"app", "istio-proxy"}, names(after, "containers")); diff != "" {
		t.Error(diff)
	}
	if got := podtree.Get(after, "metadata", "annotations", "workload"); got != "Deployment/shop/web" {
		t.Errorf("the workload is %v", got)
	}
	own := podtree.List(after, "spec", "containers")[0]
	if diff := cmp.Diff(podtree.List(pod, "spec", "containers")[0], own); diff != "" {
		t.Error(diff)
	}
	line := r.logged.All()[0]
	if got := fields(line.ContextMap()); line.Level.String()+" "+line.Message+got != "info injected pod "+
		"namespace=shop outcome=injected pod=web-5d4f8c7b9 reason=policy_enabled webhook=inject workload=Deployment/web" {
		t.Errorf("%s %s%s", line.Level, line.Message, got)
	}
}

// What is injected stays as it is at reinvocation, but for a container that another webhook has put
// before our own.
func TestAPodIsInjectedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: enabled"+small)
	_, pod := ask(t, r.inject, app())
	again := newRig(t, "policy: enabled"+small)
	said, _ := ask(t, again.inject, pod)
	if !said.Allowed || said.Patch != nil || len(said.Warnings) > 0 {
		t.Errorf("%+v: want it unchanged", said)
	}
	again.counted(t, "outcome=unchanged reason=already_injected webhook=inject", 1)
	if got := again.logged.All()[0].Level.String(); got != "debug" {
		t.Errorf("a line at %s, and nothing was to do", got)
	}
	for name, h := range map[string]func(*rig) http.Handler{
		"inject": func(r *rig) http.Handler { return r.inject },
		"strip":  func(r *rig) http.Handler { return r.strip },
	} {
		pod := podtree.Clone(pod)
		inits := podtree.List(pod, "spec", "initContainers")
		podtree.Set(pod, append([]any{podtree.Object{"name": "other", "image": "o"}}, inits...), "spec", "initContainers")
		third := newRig(t, "policy: enabled"+small)
		said, after := ask(t, h(third), pod)
		if diff := cmp.Diff([]string{"istio-validation", "other"}, names(after, "initContainers")); diff != "" {
			t.Errorf("%s: %+v: %s", name, said, diff)
		}
		third.counted(t, "outcome="+map[string]string{"inject": "injected", "strip": "stripped"}[name]+
			" reason=validation_restored webhook="+name, 1)
	}
}

func TestAPodThatCannotBeInjectedIsDenied(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: enabled"+small)
	pod := app()
	podtree.Set(pod, "many,"+secret, "metadata", "annotations", "traffic.sidecar.istio.io/includeInboundPorts")
	said, _ := ask(t, r.inject, pod)
	if said.Allowed || said.Patch != nil || said.Result == nil {
		t.Fatalf("%+v: want it denied", said)
	}
	message := said.Result.Message
	said.Result.Message = ""
	want := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid}
	if diff := cmp.Diff(want, said.Result); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"inject pod: ", "includeInboundPorts", "many", `sidecar.istio.io/inject: "false"`} {
		if !strings.Contains(message, want) {
			t.Errorf("%q: want %q in it", message, want)
		}
	}
	r.counted(t, "outcome=denied reason=mistake_of_pod webhook=inject", 1)
}

// Nobody knows whether the pod is to be injected: the failurePolicy decides.
func TestWithoutAConfigurationTheFailurePolicyDecides(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	answer := post(r.inject, marshal(t, reviewOf(app())))
	want := "sidecar-cni-injector has no configuration yet: read ConfigMap istio-system/istio-sidecar-injector: not found\n"
	if answer.Code != http.StatusInternalServerError || answer.Body.String() != want {
		t.Errorf("%d %q, want 500 %q", answer.Code, answer.Body, want)
	}
	if got := answer.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("%s: the API server repeats plain text alone", got)
	}
	r.counted(t, "outcome=error reason=no_configuration webhook=inject", 1)
	if got := r.logged.All()[0].Level.String(); got != "error" {
		t.Errorf("a line at %s", got)
	}
}

func TestWarningsReachTheClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: disabled"+small)
	pod := app()
	podtree.Set(pod, "perhaps", "metadata", "annotations", "sidecar.istio.io/inject")
	said, _ := ask(t, r.inject, pod)
	want := []string{`sidecar-cni: annotation sidecar.istio.io/inject: "perhaps": want true or false; the selectors and the policy decide`}
	if diff := cmp.Diff(want, said.Warnings); diff != "" || !said.Allowed {
		t.Errorf("%v: %s", said.Allowed, diff)
	}
	line := r.logged.All()[0]
	if line.Level.String() != "info" || line.ContextMap()["warnings"] != int64(1) {
		t.Errorf("%s %v", line.Level, line.ContextMap())
	}
}

// A dry run is answered as if it were none: nothing is done but to answer.
func TestADryRunIsTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, "policy: enabled"+small)
	wet := reviewOf(app())
	dry := podtree.Clone(wet)
	podtree.Set(dry, true, "request", "dryRun")
	a, b := post(r.inject, marshal(t, wet)), post(r.inject, marshal(t, dry))
	if diff := cmp.Diff(decode(t, a), decode(t, b)); diff != "" {
		t.Error(diff)
	}
	r.counted(t, "outcome=injected reason=policy_enabled webhook=inject", 2)
}

// One pod that we stumble over is answered, logged by its name, and the next one is injected.
func TestAPanicIsAnswered(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	broken := true
	r := rigOf(func() (*config.Config, error) {
		if broken {
			panic("assignment to entry in nil map")
		}
		return cfg, nil
	})
	answer := post(r.inject, marshal(t, reviewOf(app())))
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "mistake") {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
	line := r.logged.All()[0]
	if got := line.ContextMap(); line.Level.String() != "error" || got["pod"] != "web-5d4f8c7b9" ||
		!strings.Contains(got["error"].(string), "assignment to entry in nil map\n") {
		t.Errorf("%s %v", line.Level, got)
	}
	r.counted(t, "outcome=error reason=mistake webhook=inject", 1)
	broken = false
	// All there is room for is free again.
	for range 3 {
		large := app()
		podtree.Set(large, strings.Repeat("x", 900<<10), "metadata", "annotations", "note")
		if said, _ := ask(t, r.inject, large); said.Patch == nil {
			t.Errorf("%+v: want it injected", said)
		}
	}
}

// fields are those of a line but how long it took.
func fields(of map[string]any) string {
	var all []string
	for key, value := range of {
		if text, ok := value.(string); ok {
			all = append(all, " "+key+"="+text)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}
