package inject_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
)

const validationImage = "example.com/sidecar-cni:1"

// validated injects a pod that is to have a validation container.
func validated(t testing.TB, cfg *config.Config, pod podtree.Object) inject.Result {
	t.Helper()
	req := request(pod)
	req.Validation = &validation.Container{Image: validationImage, PullPolicy: "IfNotPresent"}
	result, err := inject.Inject(cfg, req)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func initNames(pod podtree.Object) []string {
	return names(podtree.List(pod, "spec", "initContainers"))
}

// It is the first, whatever the template and the author of the pod have, and the status has it.
func TestValidationIsTheFirst(t *testing.T) {
	t.Parallel()
	const own = "{name: first, image: i, securityContext: {runAsUser: 3000}}"
	for name, row := range map[string]struct {
		cfg    *config.Config
		inits  string
		want   []string
		status []string
	}{
		"no other": {
			cfg: load(t, "policy: enabled"+small), inits: "[]",
			want: []string{"istio-validation"}, status: []string{"istio-validation"},
		},
		"in front of the author's": {
			cfg: load(t, "policy: enabled"+small), inits: "[" + own + "]",
			want:   []string{"istio-validation", "first"},
			status: []string{"istio-validation"},
		},
		"in the place of istio-init": {
			cfg: istio11(t), inits: "[" + own + "]",
			want:   []string{"istio-validation", "first"},
			status: []string{"istio-validation"},
		},
		"in the place of Istio's own": {
			cfg: old(t, everything), inits: "[]",
			want:   []string{"istio-validation", "late", "enable-core-dump"},
			status: []string{"enable-core-dump", "istio-validation", "late"},
		},
		"in front of a native sidecar": {
			cfg: load(t, "policy: enabled\nsidecarCNI: {nativeSidecars: true}\ntemplate: |"+
				indented("containers: [{name: istio-proxy, image: i}]")),
			inits:  "[" + own + "]",
			want:   []string{"istio-validation", "istio-proxy", "first"},
			status: []string{"istio-validation", "istio-proxy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := fromYAML(t, "metadata: {annotations: {}}\nspec: {initContainers: "+row.inits+
				", containers: [{name: app, image: i, securityContext: {runAsUser: 2000}}]}")
			after := validated(t, row.cfg, pod).Pod
			if diff := cmp.Diff(row.want, initNames(after)); diff != "" {
				t.Errorf("init containers (-want +got):\n%s", diff)
			}
			if got := container(after, "istio-validation")["image"]; got != validationImage {
				t.Errorf("its image is %v, want %s", got, validationImage)
			}
			if diff := cmp.Diff(row.status, initsOfStatus(t, after)); diff != "" {
				t.Errorf("init containers in the status (-want +got):\n%s", diff)
			}
		})
	}
}

// initsOfStatus are the init containers that the annotation names.
func initsOfStatus(t testing.TB, pod podtree.Object) []string {
	t.Helper()
	var status struct{ InitContainers []string }
	text := podtree.String(pod, "metadata", "annotations", "sidecar.istio.io/status")
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return status.InitContainers
}

// No rules are written for such a pod, so nothing could be found of them.
func TestNoValidationOfAPodWithoutRedirection(t *testing.T) {
	t.Parallel()
	asking := app()
	podtree.Set(asking, "NONE", "metadata", "annotations", "sidecar.istio.io/interceptionMode")
	for name, after := range map[string]podtree.Object{
		"by the pod": validated(t, load(t, "policy: enabled"+small), asking).Pod,
		"by the mesh": validated(t, load(t, "policy: enabled"+small,
			"defaultConfig: {interceptionMode: NONE}"), app()).Pod,
	} {
		if got := initNames(after); got != nil {
			t.Errorf("%s: init containers %v", name, got)
		}
		if !hasProxy(after) {
			t.Errorf("%s: no proxy", name)
		}
	}
}

// Another webhook, called after us, has put a container in front of all.
func TestValidationGoesBackToTheFront(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	first := validated(t, cfg, app()).Pod
	for name, row := range map[string]struct {
		change func(podtree.Object)
		want   []string // nil: nothing changes
	}{
		"as it was": {change: func(podtree.Object) {}},
		"another one in front": {
			change: func(pod podtree.Object) { inFront(pod, "other") },
			want:   []string{"istio-validation", "other"},
		},
		"several in front": {
			change: func(pod podtree.Object) { inFront(pod, "other"); inFront(pod, "third") },
			want:   []string{"istio-validation", "third", "other"},
		},
		"another one in front, and more in it": {
			change: func(pod podtree.Object) {
				ours := container(pod, "istio-validation")
				podtree.Set(ours, "50m", "resources", "limits", "cpu")
				podtree.Set(ours, []any{podtree.Object{"name": "token", "mountPath": "/token"}},
					"volumeMounts")
				inFront(pod, "other")
			},
			want: []string{"istio-validation", "other"},
		},
		"another one in front, and the image from a mirror": {
			change: func(pod podtree.Object) {
				container(pod, "istio-validation")["image"] = "mirror.example/sidecar-cni:1"
				inFront(pod, "other")
			},
			want: []string{"istio-validation", "other"},
		},
		"of another program": {
			change: func(pod podtree.Object) {
				container(pod, "istio-validation")["command"] = []any{"/usr/local/bin/pilot-agent"}
				inFront(pod, "other")
			},
		},
		"none": {
			change: func(pod podtree.Object) {
				podtree.Delete(pod, "spec", "initContainers")
				inFront(pod, "other")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podtree.Clone(first)
			row.change(pod)
			before := podtree.Clone(pod)
			result := validated(t, cfg, pod)
			if want := (inject.Decision{Reason: inject.AlreadyInjected}); result.Decision != want {
				t.Errorf("%+v, want %+v", result.Decision, want)
			}
			if !cmp.Equal(before, pod) {
				t.Errorf("the request's pod changed: %s", cmp.Diff(before, pod))
			}
			want := row.want
			if want == nil {
				want = initNames(before)
			}
			if diff := cmp.Diff(want, initNames(result.Pod)); diff != "" {
				t.Errorf("init containers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(container(before, "istio-validation"),
				container(result.Pod, "istio-validation")); diff != "" {
				t.Errorf("the container changed:\n%s", diff)
			}
			podtree.Delete(before, "spec", "initContainers")
			rest := podtree.Clone(result.Pod)
			podtree.Delete(rest, "spec", "initContainers")
			if diff := cmp.Diff(before, rest); diff != "" {
				t.Errorf("something else changed:\n%s", diff)
			}
		})
	}
}

// Another webhook has changed the users: the container is the proxy to the rules.
func TestValidationRunsAsTheProxy(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	pod := validated(t, cfg, app()).Pod
	podtree.Set(container(pod, "istio-proxy"), int64(2000), "securityContext", "runAsUser")
	ours := container(validated(t, cfg, pod).Pod, "istio-validation")
	if got := podtree.Get(ours, "securityContext", "runAsUser"); got != int64(2000) {
		t.Errorf("it runs as %v, want 2000", got)
	}
}

// A webhook that is called later has put istio-init into the pod: it redirects the pod, but only
// once the container in front of it has ended.
func TestNoValidationInFrontOfIstioInit(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	pod := validated(t, cfg, app()).Pod
	inFront(pod, "istio-init")
	if got := initNames(validated(t, cfg, pod).Pod); !slices.Equal(got, []string{"istio-init"}) {
		t.Errorf("init containers %v", got)
	}
}

// inFront puts an init container in front of a pod's others.
func inFront(pod podtree.Object, name string) {
	inits := podtree.List(pod, "spec", "initContainers")
	podtree.Set(pod, slices.Insert(slices.Clone(inits), 0,
		any(podtree.Object{"name": name, "image": "i"})), "spec", "initContainers")
}

// Who has no validation wants none.
func TestWithoutValidationNothingIsPutBack(t *testing.T) {
	t.Parallel()
	cfg := load(t, "policy: enabled"+small)
	pod := validated(t, cfg, app()).Pod
	inFront(pod, "other")
	if got, want := mustNotInject(t, cfg, pod), marshal(t, pod); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
