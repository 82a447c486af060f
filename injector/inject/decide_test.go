package inject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// The table of seed 004: policy, whether neverInjectSelector and alwaysInjectSelector match, the
// annotation, and whether the pod is injected.
//
//nolint:dupword // two columns of a row may say the same
const seedTable = `
enabled  match     match     true  yes
enabled  match     other     true  yes
enabled  other     match     true  yes
enabled  other     other     true  yes
enabled  match     match     false no
enabled  match     other     false no
enabled  other     match     false no
enabled  other     other     false no
enabled  match     match     -     no
enabled  match     other     -     no
enabled  other     match     -     yes
enabled  other     other     -     yes
disabled match     match     true  yes
disabled match     other     true  yes
disabled other     match     true  yes
disabled other     other     true  yes
disabled match     match     false no
disabled match     other     false no
disabled other     match     false no
disabled other     other     false no
disabled match     match     -     no
disabled match     other     -     no
disabled other     match     -     yes
disabled other     other     -     no
`

const selectors = `
neverInjectSelector:
- matchLabels: {sidecar/label: notinject}
- matchExpressions: [{key: sidecar/notinject, operator: Exists}]
alwaysInjectSelector:
- matchLabels: {sidecar/label: inject}
- matchExpressions: [{key: sidecar/inject, operator: Exists}]
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
			result, err := inject.Inject(load(t, "policy: "+f[0]+selectors+small), request(pod))
			if err != nil {
				t.Fatal(err)
			}
			if want := f[4] == "yes"; result.Decision.Inject != want || hasProxy(result.Pod) != want {
				t.Errorf("injected: %v, has a proxy: %v; want %v: %s", result.Decision.Inject,
					hasProxy(result.Pod), want, result.Decision.Reason)
			}
			if len(result.Warnings) > 0 {
				t.Errorf("warnings: %q", result.Warnings)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	const label, annotation = "metadata.labels.", "metadata.annotations."
	// Each row says something more than the one above it, which outranks that.
	rows := []struct {
		path, value string
		want        inject.Reason
		injected    bool
	}{
		{"metadata.labels.app", "web", inject.PolicyDisabled, false},
		{label + "sidecar/inject", "on", inject.AlwaysSelector, true},
		{label + "sidecar/notinject", "", inject.NeverSelector, false},
		{annotation + inject4, "true", inject.AnnotationTrue, true},
		{annotation + inject4, "false", inject.AnnotationFalse, false},
		{label + inject4, "true", inject.LabelTrue, true},
		{label + inject4, "false", inject.LabelFalse, false},
		{label + inject4, "true", inject.LabelTrue, true},
		{annotation + "sidecar.istio.io/status", "{}", inject.AlreadyInjected, false},
		{annotation + "kubernetes.io/config.mirror", "1", inject.StaticPod, false},
		{"metadata.namespace", "closed", inject.ExcludedNamespace, false},
		{"spec.hostNetwork", "", inject.HostNetwork, false},
	}
	pod := app()
	seen := map[inject.Reason]bool{inject.PolicyEnabled: true} // of the seed's table
	for _, row := range rows {
		set(pod, row.path, row.value)
		before := podtree.Clone(pod)
		result, err := inject.Inject(load(t, "policy: disabled"+selectors+small), request(pod))
		if err != nil {
			t.Fatalf("%s: %v", row.path, err)
		}
		got := fmt.Sprint(result.Decision.Inject, " ", string(result.Decision.Reason))
		if want := fmt.Sprint(row.injected, " ", string(row.want)); got != want {
			t.Errorf("%s %q: %s, want %s", row.path, row.value, got, want)
		}
		if diff := cmp.Diff(before, pod); diff != "" {
			t.Errorf("the request's pod changed: %s", diff)
		}
		if diff := cmp.Diff(pod, result.Pod); !row.injected && diff != "" {
			t.Errorf("%s: a pod that is not injected changed: %s", row.want, diff)
		}
		seen[row.want] = true
	}
	for _, reason := range inject.Reasons {
		if !seen[reason] || reason.String() == "" {
			t.Errorf("%s: in no row, or without words: %q", string(reason), reason)
		}
	}
}

const inject4 = "sidecar.istio.io/inject"

// set writes a text at a path whose last key may have dots: those behind metadata.labels. are one.
func set(pod podtree.Object, path, value string) {
	keys := strings.SplitN(path, ".", 3)
	if path == "spec.hostNetwork" {
		podtree.Set(pod, true, keys...)
		return
	}
	podtree.Set(pod, value, keys...)
}

// What is neither true nor false is as if it were not said. Istio 1.1 takes "yes" for true and
// "nope" for false.
func TestOtherValuesLeaveItToThePolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"enabled", "disabled"} {
		for _, field := range []string{"labels", "annotations"} {
			for _, value := range []string{"", "yes", "nope", "True", "FALSE", "1"} {
				pod := app()
				podtree.Set(pod, value, "metadata", field, inject4)
				result, err := inject.Inject(load(t, "policy: "+policy+small), request(pod))
				if err != nil {
					t.Fatal(err)
				}
				if result.Decision.Inject != (policy == "enabled") {
					t.Errorf("%s %s %q: injected is %v", policy, field, value, result.Decision.Inject)
				}
				want := fmt.Sprintf("%s sidecar.istio.io/inject: %q: want true or false; the "+
					"selectors and the policy decide", strings.TrimSuffix(field, "s"), value)
				if diff := cmp.Diff([]string{want}, result.Warnings); diff != "" {
					t.Error(diff)
				}
			}
		}
	}
}

// A label that says neither hides the annotation, as one that says something does.
func TestTheLabelHidesTheAnnotation(t *testing.T) {
	t.Parallel()
	pod := app()
	podtree.Set(pod, "perhaps", "metadata", "labels", inject4)
	podtree.Set(pod, "false", "metadata", "annotations", inject4)
	result, err := inject.Inject(load(t, "policy: enabled"+small), request(pod))
	if err != nil || result.Decision.Reason != inject.PolicyEnabled {
		t.Errorf("%v, %v; want the policy's", result.Decision, err)
	}
}

func TestTheNamespaceIsThatOfThePodFirst(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	for _, row := range []struct {
		pod, request, workload string
		excluded               bool
	}{
		{"closed", "open", "open", true},
		{"open", "closed", "closed", false},
		{"", "closed", "open", true},
		{"", "open", "closed", false},
		{"", "", "closed", true},
		{"", "", "", false},
	} {
		r := request(app())
		if row.pod != "" {
			podtree.Set(r.Pod, row.pod, "metadata", "namespace")
		}
		r.Namespace, r.Workload.Namespace = row.request, row.workload
		result, err := inject.Inject(cfg, r)
		if err != nil {
			t.Fatal(err)
		}
		if got := result.Decision.Reason == inject.ExcludedNamespace; got != row.excluded {
			t.Errorf("%+v: %s", row, result.Decision.Reason)
		}
	}
}

// A mistake in a pod that is not injected is nobody's business here.
func TestAPodThatIsNotInjectedIsNeverAnError(t *testing.T) {
	t.Parallel()
	pod := podtree.Object{"spec": podtree.Object{"containers": "none", "hostNetwork": true}}
	result, err := inject.Inject(load(t, "policy: enabled"+small), request(pod))
	if err != nil || result.Decision.Inject {
		t.Errorf("%v, %v", result.Decision, err)
	}
}
