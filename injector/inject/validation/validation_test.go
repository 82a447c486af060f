package validation

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// byValue has cmp compare addresses as Go does.
var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

var ours = Container{Image: "example.com/sidecar-cni:1", PullPolicy: "IfNotPresent"}

// injected is a pod with a proxy as the last of its containers.
const injected = `{
	"metadata": {"name": "web", "namespace": "shop", "annotations": {"sidecar.istio.io/status": "{}"}},
	"spec": {
		"initContainers": [{"name": "migrate", "image": "migrate"}],
		"containers": [
			{"name": "web", "image": "web", "ports": [{"containerPort": 15002}]},
			{"name": "istio-proxy", "image": "proxy", "args": ["proxy", "sidecar"],
				"resources": {"limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}, "requests": {"cpu": "100m", "memory": "128Mi"}}}]}}`

// native is a pod whose proxy is a native sidecar with a user of its own.
const native = `{
	"metadata": {"annotations": {"sidecar.istio.io/status": "{}", "sidecar-cni.io/inboundPort": "25006"}},
	"spec": {
		"initContainers": [
			{"name": "istio-proxy", "image": "proxy", "restartPolicy": "Always", "securityContext": {"runAsUser": 2500, "runAsGroup": 2501}},
			{"name": "migrate", "image": "migrate"}],
		"containers": [{"name": "web", "image": "web"}]}}`

func decode(t testing.TB, text string) podtree.Object {
	t.Helper()
	pod, err := podtree.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func names(pod podtree.Object) []string {
	var all []string
	for _, c := range podtree.List(pod, "spec", "initContainers") {
		all = append(all, podtree.String(c.(podtree.Object), "name"))
	}
	return all
}

func TestTheContainer(t *testing.T) {
	t.Parallel()
	pod := decode(t, injected)
	if err := Add(pod, ours); err != nil {
		t.Fatal(err)
	}
	want := decode(t, `{
		"name": "istio-validation", "image": "example.com/sidecar-cni:1", "imagePullPolicy": "IfNotPresent",
		"command": ["/sidecar-cni-injector"],
		"args": ["validate", "--inbound-port=15006", "--call=127.0.0.1>127.0.0.6:15003,::1>[::6]:15003"],
		"securityContext": {"runAsUser": 1337, "runAsGroup": 1337, "runAsNonRoot": true, "privileged": false,
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
			"seccompProfile": {"type": "RuntimeDefault"}},
		"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
		"terminationMessagePolicy": "FallbackToLogsOnError"}`)
	if diff := cmp.Diff(want, find(pod)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	put(pod, nil) // nothing else has changed
	if diff := cmp.Diff(decode(t, injected), pod); diff != "" {
		t.Errorf("without the container (-want +got):\n%s", diff)
	}
}

// The rules know the proxy by its uid first, and one that is root by another uid.
func TestTheUser(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		context     string // of the proxy
		user, group int64
	}{
		"not said":         {`{}`, 1337, 1337},
		"a user":           {`{"runAsUser": 2500}`, 2500, 2500},
		"a user and group": {`{"runAsUser": 2500, "runAsGroup": 2501}`, 2500, 2500},
		"root":             {`{"runAsUser": 0, "runAsGroup": 2501}`, 1337, 2501},
		"root altogether":  {`{"runAsUser": 0, "runAsGroup": 0}`, 1337, 1337},
	} {
		pod := decode(t, injected)
		podtree.Set(proxyOf(pod), decode(t, row.context), "securityContext")
		if err := Add(pod, ours); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		context := podtree.Map(find(pod), "securityContext")
		if context["runAsUser"] != row.user || context["runAsGroup"] != row.group {
			t.Errorf("%s: %v, want user %d and group %d", name, context, row.user, row.group)
		}
	}
}

func TestTheResourcesAreTheProxys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"limits": {"memory": "64Mi"}}`,
		`{"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "1Gi"}}`} {
		pod := decode(t, injected)
		podtree.Set(proxyOf(pod), decode(t, text), "resources")
		if err := Add(pod, ours); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode(t, text), podtree.Map(find(pod), "resources")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// One that has the name gives way, and ours becomes the first, whatever was done to it.
func TestTheContainerIsTheFirst(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"ordinary proxy": injected,
		"native proxy":   native,
		"no others":      strings.Replace(injected, `[{"name": "migrate", "image": "migrate"}]`, "null", 1),
	} {
		want := decode(t, text)
		others := names(want)
		if err := Add(want, ours); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(append([]string{Name}, others...), names(want)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		for _, one := range []string{
			`{"name": "istio-validation", "image": "proxyv2", "args": ["istio-iptables"], "restartPolicy": "Always"}`,
			`{"name": "istio-validation", "image": "other", "command": ["/sidecar-cni-injector"], "securityContext": {"runAsUser": 7},
				"volumeMounts": [{"name": "token", "mountPath": "/token"}]}`,
		} {
			pod := podtree.Clone(want)
			inits := podtree.List(pod, "spec", "initContainers")[1:]
			podtree.Set(pod, slices.Concat(inits, []any{decode(t, one)}), "spec", "initContainers")
			if err := Add(pod, ours); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, pod); diff != "" {
				t.Errorf("%s, with one of the name (-want +got):\n%s", name, diff)
			}
		}
	}
}

// A container of ours that is renewed keeps what a cluster puts into containers, and nothing by
// which it would hold up less.
func TestWhatARenewedContainerKeeps(t *testing.T) {
	t.Parallel()
	want := decode(t, injected)
	if err := Add(want, ours); err != nil {
		t.Fatal(err)
	}
	kept := decode(t, `{"imagePullPolicy": "Always", "image": "mirror.example/sidecar-cni:1",
		"resources": {"limits": {"memory": "64Mi"}},
		"volumeMounts": [{"name": "token", "mountPath": "/token"}]}`)
	lost := decode(t, `{"restartPolicy": "Always", "lifecycle": {}, "startupProbe": {}, "tty": true}`)
	pod := podtree.Clone(want)
	first := podtree.List(pod, "spec", "initContainers")[0].(podtree.Object)
	maps.Copy(first, kept)
	maps.Copy(podtree.List(want, "spec", "initContainers")[0].(podtree.Object), kept)
	maps.Copy(first, lost)
	podtree.Set(first, "Unmasked", "securityContext", "procMount")
	if err := Renew(pod, ours); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a cluster excludes, or says of runtimes, is not known. Nobody loses the container by it.
func TestWhatOnlyTheClusterKnows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ value, parent, key string }{
		{"kube-system", "metadata", "namespace"},
		{"gvisor", "spec", "runtimeClassName"},
	} {
		pod := decode(t, injected)
		podtree.Set(pod, row.value, row.parent, row.key)
		if err := Add(pod, ours); err != nil || !isOurs(find(pod)) {
			t.Errorf("%s %s: %v, %v, want the container", row.key, row.value, find(pod), err)
		}
	}
}

// Pods that the plugin leaves alone have no rules to be shown. A container of ours that one has
// from before would keep it from its start.
func TestPodsThatAreNotRedirected(t *testing.T) {
	t.Parallel()
	istio := `{"name": "istio-validation", "image": "proxyv2"}`
	for name, change := range map[string]func(podtree.Object){
		"not injected": func(p podtree.Object) { podtree.Delete(p, "metadata", "annotations") },
		"mode NONE": func(p podtree.Object) {
			podtree.Set(p, "NONE", "metadata", "annotations", "sidecar.istio.io/interceptionMode")
		},
		"injection switched off": func(p podtree.Object) {
			podtree.Set(p, "false", "metadata", "labels", "sidecar.istio.io/inject")
		},
		"the proxy switched off": func(p podtree.Object) {
			podtree.Set(proxyOf(p), []any{podtree.Object{"name": "DISABLE_ENVOY", "value": "true"}}, "env")
		},
		"a gateway":    func(p podtree.Object) { podtree.Set(proxyOf(p), []any{"proxy", "router"}, "args") },
		"no proxy":     func(p podtree.Object) { podtree.Set(proxyOf(p), "envoy", "name") },
		"host network": func(p podtree.Object) { podtree.Set(p, true, "spec", "hostNetwork") },
		"Windows":      func(p podtree.Object) { podtree.Set(p, "windows", "spec", "os", "name") },
		"static": func(p podtree.Object) {
			podtree.Set(p, "x", "metadata", "annotations", "kubernetes.io/config.mirror")
		},
		"istio-init, which comes later": func(p podtree.Object) {
			inits := podtree.List(p, "spec", "initContainers")
			podtree.Set(p, append(slices.Clone(inits), podtree.Object{"name": "istio-init"}), "spec", "initContainers")
		},
	} {
		want := decode(t, injected)
		change(want)
		pod := podtree.Clone(want)
		if err := Add(pod, ours); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, pod); diff != "" {
			t.Errorf("%s: the pod changed (-want +got):\n%s", name, diff)
		}
		pod = decode(t, injected)
		if err := Add(pod, ours); err != nil {
			t.Fatal(err)
		}
		change(pod)
		if err := Add(pod, ours); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, pod); diff != "" {
			t.Errorf("%s: our container stayed (-want +got):\n%s", name, diff)
		}
		put(pod, decode(t, istio))
		want = podtree.Clone(pod)
		if err := Add(pod, ours); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, pod); diff != "" {
			t.Errorf("%s: another's container changed (-want +got):\n%s", name, diff)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		path  []string
		value any
		want  string
	}{
		"a mistake of the pod's": {[]string{"metadata", "annotations", "traffic.sidecar.istio.io/excludeOutboundPorts"}, "http",
			`redirection: traffic.sidecar.istio.io/excludeOutboundPorts: "http": want a port`},
		"no call possible": {[]string{"metadata", "annotations", "traffic.sidecar.istio.io/excludeInterfaces"}, "eth1,lo",
			`init container "istio-validation": no call of the pod to itself is redirected, since ` +
				`traffic.sidecar.istio.io/excludeInterfaces has "lo", by which lo is left alone: name the other interfaces; ` +
				`or set the chart's injector.guard to none, and have the nodes guard their pods`},
		"no pod": {[]string{"spec", "initContainers"}, "x", "read pod: "},
	} {
		pod := decode(t, injected)
		podtree.Set(pod, row.value, row.path...)
		before := podtree.Clone(pod)
		err := Add(pod, ours)
		if err == nil || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%s: %v, want %s", name, err, row.want)
		}
		if diff := cmp.Diff(before, pod); diff != "" {
			t.Errorf("%s: the pod changed (-want +got):\n%s", name, diff)
		}
	}
}

// FuzzAdd adds the container to any pod that is one: once is twice, all else stays, and the plugin
// decides as before.
func FuzzAdd(f *testing.F) {
	for _, text := range []string{injected, native, `{}`, `{"spec": {"initContainers": [{}], "containers": [null]}}`,
		strings.Replace(injected, `"annotations": {`, `"annotations": {"sidecar-cni.io/initContainers": "bypass", `, 1),
		strings.Replace(native, `"annotations": {`, `"annotations": {"sidecar.istio.io/interceptionMode": "TPROXY", `, 1),
		strings.Replace(native, `"migrate"`, `"istio-validation"`, 1)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, err := podtree.Decode(data)
		if err != nil {
			return
		}
		before := podtree.Clone(pod)
		if err := Add(pod, ours); err != nil {
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("%v, and the pod changed (-want +got):\n%s", err, diff)
			}
			return
		}
		once := podtree.Clone(pod)
		if err := Add(pod, ours); err != nil {
			t.Errorf("a second time: %v", err)
		}
		if diff := cmp.Diff(once, pod); diff != "" {
			t.Errorf("a second time (-want +got):\n%s", diff)
		}
		if inits := podtree.List(before, "spec", "initContainers"); podtree.Named(inits, Name) < 0 {
			was, now := decisionOf(t, before), decisionOf(t, pod)
			if diff := cmp.Diff(was, now, byValue); diff != "" {
				t.Errorf("the decision changed (-want +got):\n%s", diff)
			}
			if isOurs(find(pod)) != (was.Skip == "") && podtree.Get(before, "spec", "hostNetwork") == nil &&
				podtree.Get(before, "spec", "os") == nil {
				t.Errorf("skip %q, and the container is %v", was.Skip, find(pod))
			}
			put(pod, nil)
			put(before, nil) // a list that is empty goes
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("without the container (-want +got):\n%s", diff)
			}
		}
	})
}

func decisionOf(t *testing.T, pod podtree.Object) redirect.Decision {
	t.Helper()
	var typed kubepod.Pod
	if err := podtree.Into(pod, &typed); err != nil {
		t.Fatal(err)
	}
	facts := typed.Facts()
	facts.Name, facts.Namespace = "web", "shop"
	cfg := redirect.Defaults()
	cfg.RuntimeHandlers = nil
	decision, err := redirect.Decide(facts, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return decision
}
