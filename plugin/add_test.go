package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

const previous = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.1.2.3/24","interface":0}]}`

func TestAPodThatIsOursIsRedirected(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "22"}))
	r, told := n.callReported(request{
		command: "ADD", netns: ns.Path(),
		conf: map[string]any{"prevResult": json.RawMessage(previous)},
	})
	r.want(t, 0)
	if r.answer != previous {
		t.Errorf("answer %s", r.answer)
	}
	n.wantRedirected(ns, redirect.NFTables)
	rec := n.recorded("0a1b")
	if diff := cmp.Diff(record.Pod{Namespace: "shop", Name: "web-0", UID: uid},
		rec.Pod); diff != "" || rec.Network != "pods" {
		t.Errorf("recorded network %q, pod (-want +got):\n%s", rec.Network, diff)
	}
	if diff := cmp.Diff([]uint16{22}, rec.Policy.Outbound.ExcludePorts); diff != "" {
		t.Errorf("recorded policy (-want +got):\n%s", diff)
	}
	line := r.last(t)
	delete(line, "took")
	delete(line, "time")
	want := map[string]any{
		"level": "info", "msg": "redirected pod", "command": "ADD", "pod": "shop/web-0",
		"container": "0a1b",
		"netns":     ns.Path(), "backend": "nftables", "outcome": "redirected", "path": "agent",
	}
	if diff := cmp.Diff(want, line); diff != "" || len(r.lines) != 1 {
		t.Errorf("%d lines, the last (-want +got):\n%s", len(r.lines), diff)
	}
	for _, phase := range []string{"parse", "find", "apply", "record"} {
		if _, ok := told.Phases[phase]; !ok {
			t.Errorf("the agent was not told of phase %s: %v", phase, told.Phases)
		}
	}
	told.Phases = nil
	if diff := cmp.Diff(agent.Outcome{Command: "ADD", Namespace: "shop", Name: "web-0", UID: uid,
		Outcome: "redirected", Source: "agent"}, told); diff != "" {
		t.Errorf("the agent was told (-want +got):\n%s", diff)
	}
}

func TestEveryBackendRedirects(t *testing.T) {
	t.Parallel()
	for _, name := range []string{redirect.NFTables, redirect.IptablesNFT,
		redirect.IptablesLegacy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.agent.Put(meshed(nil))
			for range 2 { // twice is once
				n.call(request{command: "ADD", netns: ns.Path(),
					conf: map[string]any{"backend": name}}).want(t, 0)
				n.wantRedirected(ns, name)
			}
			n.call(request{command: "CHECK", netns: ns.Path(),
				conf: map[string]any{"backend": name}}).want(t, 0)
		})
	}
}

func TestAUserNamespaceOfItsOwnGetsNFTables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{redirect.NFTables, redirect.IptablesNFT,
		redirect.IptablesLegacy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.NewInUserNamespace(t), newNode(t)
			n.agent.Put(meshed(nil))
			n.call(request{command: "ADD", netns: ns.Path(),
				conf: map[string]any{"backend": name}}).want(t, 0)
			n.wantRedirected(ns, redirect.NFTables)
		})
	}
}

// Whatever else is wrong, a pod that is not ours passes. The namespace does not exist: nobody
// looks.
func TestAPodThatIsNotOursPasses(t *testing.T) {
	t.Parallel()
	injected := map[string]string{statusKey: "{}"}
	with := func(key, value string) map[string]any {
		return told(map[string]string{statusKey: "{}", key: value})
	}
	rows := map[string]struct {
		args   string
		conf   map[string]any
		reason redirect.Skip
	}{
		"no pod": {args: "IgnoreUnknown=1", reason: redirect.NotAPod},
		"no namespace": {args: "K8S_POD_NAME=web-0", conf: told(injected),
			reason: redirect.NotAPod},
		"arguments in pieces": {args: ";;=;K8S_POD_NAME;a=b=c", conf: told(injected),
			reason: redirect.NotAPod},
		"not injected": {conf: told(map[string]string{"kubernetes.io/config.seen": "x"}),
			reason: redirect.NotInjected},
		"static pod": {conf: with("kubernetes.io/config.source", "file"),
			reason: redirect.StaticPod},
		"interception none": {conf: with("sidecar.istio.io/interceptionMode", "NONE"),
			reason: redirect.InterceptionNone},
		"excluded namespace": {args: ofPod("kube-system", "web-0"),
			reason: redirect.ExcludedNamespace},
		"own agent": {args: ofPod("kube-system", "sidecar-cni-x7k2p"),
			conf: map[string]any{"excludeNamespaces": []string{}}, reason: redirect.OwnAgent},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.agent.Break(onlyReports)
			conf := map[string]any{
				"backend": "ebpf", "stateDir": "/proc/nowhere", "kubeconfig": 7,
				"logFile": "/proc/nowhere/log", "redirect": "no",
				"deadline": nil, "prevResult": json.RawMessage(previous),
			}
			maps.Copy(conf, row.conf)
			r := n.call(request{command: "ADD", netns: "/nowhere", args: row.args, conf: conf})
			r.want(t, 0)
			line := r.last(t)
			if line["outcome"] != "skipped" || line["reason"] != string(row.reason) ||
				r.answer != previous {
				t.Errorf("line %v, answer %s", line, r.answer)
			}
			if warnings := fmt.Sprint(line["warnings"]); !strings.Contains(warnings,
				`backend: "ebpf"`) {
				t.Errorf("nobody hears of the wrong configuration: %s", warnings)
			}
			n.call(request{command: "CHECK", netns: "/nowhere", args: row.args, conf: conf}).want(t,
				0)
			n.call(request{command: "DEL", netns: "/nowhere", args: row.args, conf: conf}).want(t,
				0)
			if _, told := n.callReported(request{command: "ADD",
				netns: "/nowhere"}); told.Outcome != "failed" {
				t.Errorf("the agent was told of a pod that is not ours: %+v", told)
			}
		})
	}
}

// onlyReports takes reports and answers no question.
func onlyReports(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusTeapot)
	})
}

// Some pods can be told only by asking.
func TestAPodThatTurnsOutNotToBeOursPasses(t *testing.T) {
	t.Parallel()
	gateway := meshed(nil)
	gateway.Spec.Containers[1].Args = []string{"proxy", "router"}
	itself := meshed(nil)
	itself.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}}
	plain := meshed(map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "rubbish"})
	delete(plain.Annotations, statusKey)
	disabled := meshed(map[string]string{"sidecar.istio.io/inject": "false"})
	mirror := meshed(map[string]string{"kubernetes.io/config.mirror": uid})
	for reason, pod := range map[redirect.Skip]*corev1.Pod{
		redirect.NotASidecar: gateway, redirect.HasIstioInit: itself, redirect.NotInjected: plain,
		redirect.InjectionDisabled: disabled, redirect.StaticPod: mirror,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.agent.Put(pod)
			r, told := n.callReported(request{command: "ADD", netns: ns.Path(),
				conf: map[string]any{"backend": "ebpf"}})
			r.want(t, 0)
			if r.last(t)["reason"] != string(reason) {
				t.Errorf("line %v", r.last(t))
			}
			if told.Outcome != "skipped" || told.Reason != string(reason) {
				t.Errorf("the agent was told %+v", told)
			}
			wantUntouched(t, ns)
			if _, err := os.Stat(n.state); err == nil {
				t.Error("something was recorded")
			}
		})
	}
}

// istio-init will redirect such a pod. Until it runs, the tag of lo says so to istio-validation.
func TestAPodThatGotIstioInitBackIsLeftToIt(t *testing.T) {
	t.Parallel()
	restored := meshed(map[string]string{redirect.StrippedAnnotation: "true"})
	restored.Spec.InitContainers = []corev1.Container{{Name: "istio-validation"},
		{Name: "istio-init"}}
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(restored)
	r, told := n.callReported(request{command: "ADD", netns: ns.Path()})
	r.want(t, 0)
	if told.Outcome != "skipped" || told.Reason != string(redirect.InitRestored) {
		t.Errorf("the agent was told %+v", told)
	}
	wantUntouched(t, ns)
	if tag := strings.TrimSpace(ns.Run(t, "", "cat", names.LoopbackTag)); tag !=
		names.InitRestored {
		t.Errorf("the tag of lo is %q, want %q", tag, names.InitRestored)
	}
}

// The kubelet sets annotations on every pod: a runtime that passes none, or something else, has not
// told them.
func TestAnnotationsThatAreNotToldAreAskedFor(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]string{
		"none":                 `{}`,
		"null":                 `null`,
		"not all of them":      `{"a": "b", "c": 1}`,
		"in another form":      `["sidecar.istio.io/status"]`,
		"no runtimeConfig":     ``,
		"something unheard of": `7`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			n.agent.Put(meshed(nil))
			conf := map[string]any{}
			if told != "" {
				conf["runtimeConfig"] = map[string]any{
					netconf.AnnotationsCapability: json.RawMessage(told)}
			}
			n.call(request{command: "ADD", netns: ns.Path(), conf: conf}).want(t, 0)
			n.wantRedirected(ns, redirect.NFTables)
		})
	}
}

// Whoever looks at an event knows the pod by the API server's uid.
func TestAMirrorPodIsKnownByItsOwnUID(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	pod := meshed(map[string]string{"kubernetes.io/config.mirror": uid})
	pod.UID = "another"
	n.agent.Put(pod)
	r, reported := n.callReported(request{command: "ADD", netns: ns.Path()})
	r.want(t, 0)
	if reported.UID != "another" || reported.Reason != string(redirect.StaticPod) {
		t.Errorf("reported %+v", reported)
	}
}

// The author of a pod writes its labels and annotations. What he cannot write is what the kubelet
// tells the runtime.
func TestWhatAPodsAuthorCanWrite(t *testing.T) {
	t.Parallel()
	const inject, source = "sidecar.istio.io/inject", "kubernetes.io/config.source"
	for name, row := range map[string]struct {
		labels, annotations map[string]string
		runtime             map[string]string // beside the pod's annotations
		want                string
	}{
		"inject by label, not by annotation": {map[string]string{inject: "true"},
			map[string]string{inject: "false"}, nil, "redirected"},
		"injected, and the annotation says no": {nil, map[string]string{inject: "no"}, nil,
			"redirected"},
		"not by label": {map[string]string{inject: "false"},
			map[string]string{inject: "true"}, nil, "skipped"},
		"static, by its own word": {nil, map[string]string{source: "file"},
			map[string]string{source: "api"}, "redirected"},
		"static, by the kubelet's": {nil, map[string]string{source: "api"},
			map[string]string{source: "file"}, "skipped"},
		"a mirror, and the kubelet has it from the API server": {
			nil, map[string]string{"kubernetes.io/config.mirror": "x"},
			map[string]string{source: "api"}, "redirected",
		},
	} {
		for _, telling := range []bool{true, false} {
			if row.runtime != nil && !telling {
				continue
			}
			t.Run(fmt.Sprintf("%s, runtime tells %t", name, telling), func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t)
				pod := meshed(row.annotations)
				pod.Labels = row.labels
				n.agent.Put(pod)
				conf := map[string]any{}
				if telling {
					annotations := maps.Clone(pod.Annotations)
					maps.Copy(annotations, row.runtime)
					conf = told(annotations)
				}
				r := n.call(request{command: "ADD", netns: ns.Path(), conf: conf})
				r.want(t, 0)
				if got := r.last(t)["outcome"]; got != row.want {
					t.Errorf("%s, want %s", got, row.want)
				}
			})
		}
	}
}

// What the runtime alone tells is enough to skip a pod only if no object of the API could say
// otherwise.
func FuzzASkipUnaskedIsASkip(f *testing.F) {
	f.Add("sidecar.istio.io/inject", "false", "sidecar.istio.io/status", "{}", "true")
	f.Add("kubernetes.io/config.source", "file", "kubernetes.io/config.mirror", "x", "false")
	f.Add("sidecar.istio.io/interceptionMode", "NONE", "sidecar.istio.io/interceptionMode",
		"TPROXY", "")
	f.Add("a", "b", "sidecar.istio.io/status", "{}", "true")
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue, label string) {
		for _, status := range []bool{true, false} {
			c := call{pod: podsource.Ref{Namespace: "shop", Name: "web-0", UID: uid},
				conf: netconf.Parse([]byte(`{}`))}
			c.conf.Annotations = map[string]string{key: value}
			if status {
				c.conf.Annotations[statusKey] = "{}"
			}
			object := meshed(map[string]string{otherKey: otherValue})
			object.Labels = map[string]string{"sidecar.istio.io/inject": label}
			data, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := kubepod.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			var o outcome
			c.skipUnasked(&o)
			skip := redirect.Skip(o.reason)
			d, err := redirect.Decide(c.fromRuntime().Complete(whole.Facts()), c.conf.Redirect)
			if skip != "" && (d.Skip == "" || err != nil) {
				t.Errorf("skipped unasked (%s); as a whole: %+v, %v", skip, d, err)
			}
		}
	})
}

func TestPodsWithAKernelOfTheirOwn(t *testing.T) {
	t.Parallel()
	handlers := func(action string) map[string]any {
		return map[string]any{"runtimeHandlers": map[string]string{"kata*": action}}
	}
	for name, row := range map[string]struct {
		conf    map[string]any
		handler string // that the agent tells
		code    uint
		outcome string
	}{
		"by default":                        {nil, "kata-qemu", 106, "failed"},
		"refuse":                            {handlers("refuse"), "kata-qemu", 106, "failed"},
		"skip":                              {handlers("skip"), "kata-qemu", 0, "skipped"},
		"allow":                             {handlers("allow"), "kata-qemu", 0, "redirected"},
		"another handler":                   {handlers("refuse"), "runc", 0, "redirected"},
		"a handler that only the API knows": {nil, "", 106, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n, api := netns.New(t), newNode(t), apiserver.Start(t)
			pod := meshed(nil)
			pod.Spec.RuntimeClassName = new("vm")
			n.agent.Put(pod)
			n.agent.PutHandler("vm", row.handler)
			api.PutHandler("vm", "kata-remote")
			conf := map[string]any{"kubeconfig": api.Kubeconfig()}
			maps.Copy(conf, row.conf)
			r, reported := n.callReported(request{command: "ADD", netns: ns.Path(), conf: conf})
			if reported.Outcome != row.outcome {
				t.Errorf("reported %+v, want %s", reported, row.outcome)
			}
			r.want(t, row.code, "leave istio-init in such pods")
			if told := len(reported.Notices) == 1; told != (row.outcome == "skipped") {
				t.Errorf("notices %q", reported.Notices)
			}
			if row.outcome == "redirected" {
				n.wantRedirected(ns, redirect.NFTables)
				return
			}
			wantUntouched(t, ns)
			if left := files(n.state); len(left) > 0 {
				t.Errorf("recorded: %q", left)
			}
		})
	}
}

// Without the handler nobody knows whether the pod would be redirected.
func TestAnUnknownHandlerIsNoYes(t *testing.T) {
	t.Parallel()
	ns, n, api := netns.New(t), newNode(t), apiserver.Start(t)
	pod := meshed(nil)
	pod.Spec.RuntimeClassName = new("vm")
	n.agent.Put(pod)
	conf := map[string]any{"kubeconfig": api.Kubeconfig()}
	n.call(request{command: "ADD", netns: ns.Path(), conf: conf}).want(t, 11, `runtime class "vm"`,
		"there is no such runtime class")
	wantUntouched(t, ns)

	plain := meshed(nil)
	delete(plain.Annotations, statusKey)
	plain.Spec.RuntimeClassName = new("vm")
	n.agent.Put(plain)
	before := api.Requests()
	n.call(request{command: "ADD", netns: ns.Path(), conf: conf}).want(t, 0)
	if after := api.Requests(); after != before {
		t.Errorf("%d requests for a pod that is not ours", after-before)
	}
}

func TestTheAPIServerIsAskedWhileTheAgentIsAway(t *testing.T) {
	t.Parallel()
	ns, n, api := netns.New(t), newNode(t), apiserver.Start(t)
	api.Put(meshed(nil))
	r := n.call(request{command: "ADD", netns: ns.Path(), conf: map[string]any{
		"agentSocket": filepath.Join(t.TempDir(), "nobody"), "kubeconfig": api.Kubeconfig(),
	}})
	r.want(t, 0)
	n.wantRedirected(ns, redirect.NFTables)
	if r.last(t)["path"] != "api" {
		t.Errorf("line %v", r.last(t))
	}
}

// Ours or unknown, and something is wrong: refused, with nothing half-applied.
func TestWhatCannotBeRedirectedIsRefused(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		annotations map[string]string
		conf        map[string]any
		fault       agent.Fault
		stranger    bool
		code        uint
		words       []string
	}{
		"every wrong annotation is named": {
			annotations: map[string]string{
				"traffic.sidecar.istio.io/includeInboundPorts":     "80a",
				"traffic.sidecar.istio.io/excludeOutboundIPRanges": "*",
			},
			code: 100, words: []string{"shop/web-0", `includeInboundPorts: "80a": want a port`,
				`excludeOutboundIPRanges: "*": want a CIDR`},
		},
		"every wrong value of the configuration is named": {
			conf: map[string]any{"backend": "ebpf",
				"redirect": map[string]any{"ports": map[string]any{"inbound": "x"}}},
			code: 7, words: []string{`backend: "ebpf": want nftables`,
				`redirect.ports.inbound: "x": want a port`},
		},
		"a wrong configuration comes before wrong annotations": {
			annotations: map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "80a"},
			conf:        map[string]any{"deadline": 5}, code: 7, words: []string{"deadline: 5"},
		},
		"nobody can tell": {
			conf: map[string]any{"deadline": "1s"}, fault: agent.Unsynced, code: 11,
			words: []string{"agent", "kubeconfig"},
		},
		"nobody can tell, and the configuration is wrong": {
			conf: map[string]any{"backend": "ebpf", "deadline": "1s"}, fault: agent.Unsynced,
			code: 7, words: []string{"backend"},
		},
		"records cannot be kept": {conf: map[string]any{"stateDir": "/proc/nowhere"}, code: 105,
			words: []string{"/proc/nowhere"}},
		"another pod of its name": {stranger: true, code: 103, words: []string{uid}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			pod := meshed(row.annotations)
			if row.stranger {
				pod.UID = "another"
			}
			n.agent.Put(pod)
			n.agent.Break(row.fault)
			conf := told(pod.Annotations)
			maps.Copy(conf, row.conf)
			r := n.call(request{command: "ADD", netns: ns.Path(), conf: conf})
			r.want(t, row.code, row.words...)
			wantUntouched(t, ns)
			line := r.last(t)
			if line["outcome"] != "failed" || line["reason"] != faultOf(row.code).word ||
				line["error"] == nil || line["msg"] != "refused call" {
				t.Errorf("line %v", line)
			}
			if line["warnings"] != nil {
				t.Errorf("what is wrong is named twice: error %v, warnings %v", line["error"],
					line["warnings"])
			}
			if _, err := record.Dir(n.state).List(); err != nil || len(files(n.state)) > 0 {
				t.Errorf("records %v, %v", files(n.state), err)
			}
		})
	}
}

func faultOf(code uint) fault {
	for _, f := range faults {
		if f.code == code {
			return f
		}
	}
	return fault{}
}

func files(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	return names
}

func TestTheAgentHearsOfARefusal(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "80a"}))
	r, told := n.callReported(request{command: "ADD", netns: ns.Path()})
	told.Phases = nil
	want := agent.Outcome{
		Command: "ADD", Namespace: "shop", Name: "web-0", UID: uid, Outcome: "failed",
		Reason: "bad_annotations", Source: "agent", Message: r.err.Msg,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("the agent was told (-want +got):\n%s", diff)
	}
}

// A second ADD that fails, of another interface at run time for one, leaves the first one's rules.
func TestASecondADDThatFailsLeavesTheFirst(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{redirect.NFTables, redirect.IptablesNFT,
		redirect.IptablesLegacy} {
		for name, obstacle := range map[string]func(*node) map[string]any{
			"the records' directory cannot be written": func(*node) map[string]any {
				return map[string]any{"stateDir": "/proc/nowhere"}
			},
			"the record's name is taken": func(n *node) map[string]any {
				if err := os.MkdirAll(filepath.Join(n.state, "0a1b:net1.json", "x"),
					0o700); err != nil {
					t.Fatal(err)
				}
				return nil
			},
		} {
			t.Run(backend+": "+name, func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t)
				n.agent.Put(meshed(nil))
				conf := map[string]any{"backend": backend}
				n.call(request{command: "ADD", netns: ns.Path(), conf: conf}).want(t, 0)
				maps.Copy(conf, obstacle(n))
				for _, annotations := range []map[string]string{
					nil, {"sidecar.istio.io/interceptionMode": "TPROXY",
						"status.sidecar.istio.io/port": "15000"},
				} {
					n.agent.Put(meshed(annotations))
					n.call(request{command: "ADD", ifname: "net1", netns: ns.Path(), conf: conf}).
						want(t, 105)
					n.wantRedirected(ns, backend)
				}
				if routes := ns.Run(t, "", "ip", "rule", "show", "fwmark", "1337"); routes != "" {
					t.Errorf("routes of the second call: %s", routes)
				}
				n.agent.Put(meshed(nil))

				alone := netns.New(t) // and a first one leaves nothing
				alone.Run(t, "", "ip", "link", "set", "lo", "up")
				before := left(t, alone)
				n.call(request{command: "ADD", ifname: "net1", netns: alone.Path(), conf: conf}).
					want(t, 105)
				if after := left(t, alone); after != before {
					t.Errorf("it left\n%s", after)
				}
				if drafts, _ := filepath.Glob(filepath.Join(n.state, ".*")); len(drafts) > 0 {
					t.Errorf("drafts %q", drafts)
				}
			})
		}
	}
}

// left is what any backend may have written into a namespace.
func left(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var all strings.Builder
	all.WriteString(ns.Run(t, "", "ip", "-brief", "address", "show", "dev", "lo"))
	for _, program := range []string{"iptables-nft-save", "ip6tables-nft-save",
		"iptables-legacy-save", "ip6tables-legacy-save"} {
		for line := range strings.Lines(ns.Run(t, "", program)) {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":ISTIO_") {
				all.WriteString(line)
			}
		}
	}
	tables, _ := ns.Try(t, "", "nft", "list", "table", "inet", "sidecar-cni") // there may be none
	return all.String() + tables
}

// Rules of two backends would redirect twice, and under TPROXY lead nowhere.
func TestTheBackendOfAPodDoesNotChange(t *testing.T) {
	t.Parallel()
	backends := []string{redirect.NFTables, redirect.IptablesNFT, redirect.IptablesLegacy}
	for _, before := range backends {
		for _, after := range backends {
			if before == after {
				continue
			}
			t.Run(before+", then "+after, func(t *testing.T) {
				t.Parallel()
				ns, n := netns.New(t), newNode(t)
				n.agent.Put(meshed(map[string]string{
					"sidecar.istio.io/interceptionMode": "TPROXY"}))
				n.call(request{command: "ADD", netns: ns.Path(),
					conf: map[string]any{"backend": before}}).want(t, 0)
				n.wantRedirected(ns, before)
				policy := n.recorded("0a1b").Policy
				for _, recorded := range []bool{true, false} {
					if !recorded { // by the kernel alone it is seen, too
						if err := os.RemoveAll(n.state); err != nil {
							t.Fatal(err)
						}
					}
					n.call(request{command: "ADD", ifname: "net1", netns: ns.Path(),
						conf: map[string]any{"backend": after}}).
						want(t, 107, "ISTIO_", "create the pod anew")
					for _, p := range problems(t, ns, before, policy) {
						t.Errorf("the first backend's rules: %s", p)
					}
				}
			})
		}
	}
}

func TestIptablesOfAnotherToolAreRefused(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(nil))
	ns.Run(t, "", "iptables-nft", "-t", "nat", "-N", "ISTIO_OUTPUT")
	ns.Run(t, "", "iptables-nft", "-t", "nat", "-A", "ISTIO_OUTPUT", "-j", "RETURN")
	n.call(request{command: "ADD", netns: ns.Path(),
		conf: map[string]any{"backend": redirect.IptablesNFT}}).
		want(t, 107, "ISTIO_OUTPUT", "another tool")
	if left, err := os.ReadDir(n.state); err != nil || len(left) > 0 {
		t.Errorf("records of a pod that was refused: %v, %v", left, err)
	}
}

// TestTheHostsNamespaceIsRefused plays the host in a namespace of its own: should the check ever
// fail, no machine is cut off by the rules that it let through.
func TestTheHostsNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	host, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(nil))
	const own = "/proc/thread-self/ns/net"
	for _, command := range []string{"ADD", "CHECK", "DEL"} {
		host.Do(t, func() {
			n.call(request{command: command, netns: own}).want(t, 8, own,
				"it is the host's: the plugin runs in it")
		})
	}
	wantUntouched(t, host)
}

func TestANamespaceThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.agent.Put(meshed(nil))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/nowhere", file, "/proc/self/ns/net/x"} {
		n.call(request{command: "ADD", netns: path}).want(t, 8, path)
	}
}

func TestAWrongPrevResultIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	ns, n := netns.New(t), newNode(t)
	n.agent.Put(meshed(nil))
	for _, wrong := range []any{"x", 1, []int{}, map[string]any{"cniVersion": 1}} {
		n.call(request{command: "ADD", netns: ns.Path(),
			conf: map[string]any{"prevResult": wrong}}).want(t, 6, "prevResult")
	}
	wantUntouched(t, ns)
}

func TestNameserversComeFromTheRuntime(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		dns        any
		capture    string
		everywhere bool
		servers    string
		warning    string
	}{
		"told": {map[string]any{"Servers": []string{"10.96.0.10", "fd00::a"}},
			"servers", false, "[10.96.0.10 fd00::a]", ""},
		"told in small letters": {map[string]any{"servers": []string{"10.96.0.10"},
			"searches": []string{"a"}}, "servers", false, "[10.96.0.10]", ""},
		"one is none": {map[string]any{"servers": []string{"10.96.0.10", "dns.example"}},
			"servers", false, "[10.96.0.10]", `nameserver "dns.example"`},
		"told, but all wanted": {map[string]any{"servers": []string{"10.96.0.10"}}, "all", true,
			"[]", ""},
		"not told": {nil, "servers", true, "[]", "the runtime did not pass the pod's " +
			"nameservers (capability dns)"},
		"in another form": {"10.96.0.10", "servers", true, "[]", "dns: "},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t)
			pod := meshed(nil)
			pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE",
				Value: "true"}}
			n.agent.Put(pod)
			r := n.call(request{command: "ADD", netns: ns.Path(), conf: map[string]any{
				"dnsCapture": row.capture, "runtimeConfig": map[string]any{"dns": row.dns},
			}})
			r.want(t, 0)
			dns := n.recorded("0a1b").Policy.DNS
			var servers []string
			for _, s := range dns.Servers {
				servers = append(servers, s.String())
			}
			if dns.Everywhere != row.everywhere ||
				"["+strings.Join(servers, " ")+"]" != row.servers {
				t.Errorf("captured: %+v", dns)
			}
			warnings, _ := r.last(t)["warnings"].([]any)
			all, _ := json.Marshal(warnings)
			if row.warning == "" && warnings != nil ||
				!strings.Contains(strings.ReplaceAll(string(all), `\"`, `"`), row.warning) {
				t.Errorf("warnings %s, want %q", all, row.warning)
			}
		})
	}
}
