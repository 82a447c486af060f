package review_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

func TestIstioInitIsTakenOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, "") // it needs no configuration
	said, after := ask(t, r.strip, filled(flags...))
	if !said.Allowed || len(said.Warnings) > 0 {
		t.Errorf("%+v", said)
	}
	if diff := cmp.Diff([]string{"istio-validation"}, names(after, "initContainers")); diff != "" {
		t.Error(diff)
	}
	if got := podtree.Get(after, "metadata", "annotations", "sidecar-cni.io/stripped"); got != "true" {
		t.Errorf("sidecar-cni.io/stripped is %v", got)
	}
	r.counted(t, "outcome=stripped reason=init_container webhook=strip", 1)
	line := r.logged.All()[0]
	if got := fields(line.ContextMap()); line.Level.String()+" "+line.Message+got != "info stripped pod "+
		"namespace=shop outcome=stripped pod=web-5d4f8c7b9 reason=init_container webhook=strip workload=Deployment/web" {
		t.Errorf("%s %s%s", line.Level, line.Message, got)
	}

	again := newRig(t, "")
	said, _ = ask(t, again.strip, after)
	if !said.Allowed || said.Patch != nil {
		t.Errorf("%+v: want it unchanged", said)
	}
	again.counted(t, "outcome=unchanged reason=no_init_container webhook=strip", 1)
}

// Another webhook may give it back; as long as we are asked again, it leaves again.
func TestIstioInitLeavesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	_, after := ask(t, r.strip, filled(flags...))
	inits := podtree.List(after, "spec", "initContainers")
	podtree.Set(after, append(podtree.List(filled(flags...), "spec", "initContainers"), inits...), "spec", "initContainers")
	_, after = ask(t, r.strip, after)
	if diff := cmp.Diff([]string{"istio-validation"}, names(after, "initContainers")); diff != "" {
		t.Error(diff)
	}
	r.counted(t, "outcome=stripped reason=init_container webhook=strip", 2)
}

// Where it comes back so that it cannot leave again, our init container makes room for it: before
// istio-init has run nothing redirects the pod, which would never start.
func TestIstioInitThatComesBackAndStaysIsNotHeldUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	_, after := ask(t, r.strip, filled(flags...))
	inits := append(podtree.List(after, "spec", "initContainers"),
		podtree.Object{"name": "wait", "image": "example.com/wait:1"})
	inits = append(inits, podtree.List(filled(flags...), "spec", "initContainers")...)
	podtree.Set(after, inits, "spec", "initContainers")
	said, again := ask(t, r.strip, after)
	if diff := cmp.Diff([]string{"wait", "istio-init"}, names(again, "initContainers")); diff != "" {
		t.Error(diff)
	}
	if !said.Allowed || len(said.Warnings) != 1 {
		t.Errorf("%+v: want a warning", said)
	}
	if got := r.logged.All()[1].ContextMap()["outcome"]; got != "left" {
		t.Errorf("outcome %v", got)
	}
}

// What others have put into our init container since stays in it, as with /inject: a limit range
// or a policy may insist on it.
func TestWhatOthersPutIntoTheValidationStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	_, after := ask(t, r.strip, filled(flags...))
	inits := podtree.List(after, "spec", "initContainers")
	own := inits[0].(podtree.Object)
	own["resources"] = podtree.Object{"limits": podtree.Object{"memory": "64Mi"}}
	own["env"] = []any{podtree.Object{"name": "ZONE", "value": "a"}}
	wait := podtree.Object{"name": "wait", "image": "example.com/wait:1"}
	podtree.Set(after, []any{wait, own}, "spec", "initContainers")
	_, again := ask(t, r.strip, after)
	if diff := cmp.Diff([]any{own, wait}, podtree.List(again, "spec", "initContainers")); diff != "" {
		t.Error(diff)
	}
}

// With the admission plugin AlwaysPullImages the API server refuses a container that does not say
// Always; it says so itself before it asks us again. A registry's mirror is another webhook's word.
func TestWhatOthersPutIntoTheContainerStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	_, first := ask(t, r.strip, filled(flags...))
	ours := podtree.List(first, "spec", "initContainers")[0].(podtree.Object)
	ours["image"], ours["imagePullPolicy"] = "mirror.example/sidecar-cni:1", "Always"
	want := podtree.Clone(ours)
	for name, inits := range map[string][]any{
		"nothing else":                    {ours},
		"another init container in front": {podtree.Object{"name": "other", "image": "o"}, ours},
		"istio-init once more":            append(podtree.List(filled(flags...), "spec", "initContainers"), ours),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podtree.Clone(first)
			podtree.Set(pod, inits, "spec", "initContainers")
			_, after := ask(t, r.strip, pod)
			if diff := cmp.Diff(any(want), podtree.List(after, "spec", "initContainers")[0]); diff != "" {
				t.Errorf("the first init container (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatStripLeavesAlone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		pod  podtree.Object
		want string
	}{
		"a pod without istio-init":       {app(), "no_init_container"},
		"an istio-init of somebody else": {without(filled(flags...), "metadata", "annotations"), "not_injected"},
		"Istio's own validation":         {validated(), "no_init_container"},
		"and one that could not leave":   {without(filled("sh"), "metadata", "annotations"), "not_injected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "")
			said, _ := ask(t, r.strip, row.pod)
			if !said.Allowed || said.Patch != nil || len(said.Warnings) > 0 {
				t.Errorf("%+v: want it unchanged", said)
			}
			r.counted(t, "outcome=unchanged reason="+row.want+" webhook=strip", 1)
		})
	}
}

// validated is a pod for another CNI plugin, whose validation is not ours.
func validated() podtree.Object {
	pod := filled()
	podtree.Set(pod, []any{podtree.Object{"name": "other", "image": "o"},
		podtree.Object{"name": "istio-validation", "image": "docker.io/istio/proxyv2:1.20.0"}},
		"spec", "initContainers")
	return pod
}

func without(pod podtree.Object, path ...string) podtree.Object {
	podtree.Delete(pod, path...)
	return pod
}

// The pod starts with istio-init, and whoever creates it is told why.
func TestIstioInitThatCannotLeaveStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	pod := filled("sh", "-c", "iptables-restore < "+secret)
	inits := podtree.List(pod, "spec", "initContainers")
	podtree.Set(inits[0].(podtree.Object), []any{"sh"}, "command")
	said, _ := ask(t, r.strip, pod)
	if !said.Allowed || said.Patch != nil || len(said.Warnings) != 1 ||
		!strings.HasPrefix(said.Warnings[0], "sidecar-cni: istio-init stays in the pod: ") {
		t.Errorf("%+v: want a warning", said)
	}
	r.counted(t, "outcome=left reason=refused webhook=strip", 1)
	if line := r.logged.All()[0]; line.Level.String()+line.Message != "infoleft istio-init in pod" {
		t.Errorf("%s %s", line.Level, line.Message)
	}
}

// Many reasons are not more than the API server passes on.
func TestManyReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	pod := filled(flags...)
	var inits []any // before istio-init, and they stay
	for i := range 15 {
		inits = append(inits, podtree.Object{"name": fmt.Sprintf("%s-%d", strings.Repeat("ü", 200), i), "image": "i", "restartPolicy": "Always"})
	}
	inits = append(inits, podtree.List(pod, "spec", "initContainers")...)
	podtree.Set(pod, inits, "spec", "initContainers")
	said, _ := ask(t, r.strip, pod)
	total := 0
	for _, warning := range said.Warnings {
		total += len(warning)
		if len(warning) > 256 {
			t.Errorf("%d bytes: %s", len(warning), warning)
		}
	}
	if len(said.Warnings) != 10 || total > 4096 || said.Warnings[9] != "sidecar-cni: and 6 more warnings" {
		t.Errorf("%d warnings, %d bytes: %q", len(said.Warnings), total, said.Warnings)
	}
}

// Names are all that the log has of a pod, whatever became of it.
func TestTheLogHasNothingOfThePodButNames(t *testing.T) {
	t.Parallel()
	broken := app()
	podtree.Set(broken, secret, "metadata", "annotations", "traffic.sidecar.istio.io/includeInboundPorts")
	unclear := app()
	podtree.Set(unclear, secret, "metadata", "labels", "sidecar.istio.io/inject")
	r := newRig(t, "policy: enabled"+small)
	for _, pod := range []podtree.Object{app(), broken, unclear, filled(flags...), filled("-i", secret)} {
		ask(t, r.inject, pod)
		ask(t, r.strip, pod)
	}
	if got := len(r.logged.All()); got != 10 {
		t.Errorf("%d lines, want 10", got)
	}
	for _, line := range r.logged.All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, secret) {
			t.Errorf("%s", text)
		}
	}
}
