package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/view"
)

// now is when tests look.
var now = time.Unix(1_800_000_000, 0)

func lookAt(t *testing.T, a *fake, all bool) Report {
	t.Helper()
	r, err := Look(t.Context(), a.serve(t), Options{All: all, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := view.Show(&b, view.Text, false, r); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > view.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return b.String()
}

func TestAllIsWell(t *testing.T) {
	t.Parallel()
	a := healthy(t, "node-1", "node-2")
	r := lookAt(t, a, false)
	want := "2 nodes: 2 fine, 0 wrong, 0 to look after\n" +
		"  daemonset  ok  kube-system/sidecar-cni: 2 of 2 agents ready, 2 up to date with\n" +
		"                 agent:1.2\n"
	if diff := cmp.Diff(want, text(t, r)); diff != "" || r.Wrong() || len(r.Nodes) != 0 {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	r = lookAt(t, a, true)
	wantNode := Node{Name: "node-1", Verdict: verdict.OK,
		Rows: []verdict.Row{{About: "agent", Verdict: verdict.OK,
			What: "ready, way dropin, 12 redirected"}},
		Agent: &Agent{Pod: "kube-system/agent-node-1", Image: "agent:1.2", Ready: true,
			Reason: "effective", Way: "dropin", Backends: []string{"nftables"},
			Commands: map[string]int{"ADD redirected": 12},
			Findings: map[string]int{"redirected": 7}, Repairs: map[string]int{},
			Guard: map[string]int{}}}
	if len(r.Nodes) != 2 || r.Fine != 2 {
		t.Fatalf("%+v", r)
	}
	if diff := cmp.Diff(wantNode, r.Nodes[0]); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

// situation is a cluster of one node in which something is not as it should be.
type situation struct {
	make    func(t *testing.T, a *fake)
	verdict verdict.Word
	want    []string // in the text, whose line breaks do not count
}

var situations = map[string]situation{
	"no table nat": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, `"phase":"Running","conditions":[{"type":"Ready","status":"False"}]`)
		a.pages["agent-node-1/metrics"] = answer{text: chainState("no_backend")}
		a.pages["agent-node-1/readyz"] = answer{http.StatusServiceUnavailable,
			"not ready: no_backend: no backend works on this node: nftables: no redirection to " +
				"local ports (kernel module nft_redir): no such file or directory\n"}
		a.waitingPod(t, "shop", "web-0", `Failed to create pod sandbox: rpc error: code = Unknown `+
			`desc = failed to setup network for sandbox \"5d1c\": plugin type=\"sidecar-cni\" `+
			`failed (add): redirect pod shop/web-0: table nat: no such file or directory; `+
			`remedy: load the module nft_chain_nat`)
	}, verdict.Wrong, []string{"not ready: no_backend", "(kernel module nft_redir)",
		"remedy: load the kernel modules that are named",
		"pod shop/web-0: waits in ContainerCreating: redirect pod shop/web-0: table nat",
		"remedy: load the module nft_chain_nat"}},
	"no agent, and nothing keeps it away": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, "")
		a.daemonSet(t, `"desiredNumberScheduled":1`)
	}, verdict.Wrong, []string{"agent: none", "kubectl describe daemonset -n kube-system " +
		"sidecar-cni"}},
	"no agent, by the node's labels": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, "")
		a.lists[daemonSetsPath][0]["spec"] = object(t, `{"template":{"spec":{`+runDir+`,
			"nodeSelector":{"mesh":"yes"}}}}`)
	}, verdict.Warning, []string{"label mesh=yes"}},
	"no agent, by a taint": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, "")
		a.lists[nodesPath][0]["spec"] = object(t, `{"taints":[
			{"key":"dedicated","effect":"NoSchedule"},{"key":"gpu","effect":"NoExecute"}]}`)
	}, verdict.Warning, []string{"does not tolerate the taint gpu"}},
	"no agent, by affinity": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, "")
	}, verdict.Warning, []string{"does not want one there, by its affinity"}},
	"no agent, since the node is down": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, "")
		a.lists[nodesPath][0]["status"] = object(t, `{"conditions":[{"type":"Ready",
			"status":"Unknown","message":"Kubelet stopped posting node status."}]}`)
	}, verdict.Warning, []string{"node itself is not ready: Kubelet stopped"}},
	"an image that cannot be pulled": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, `"phase":"Pending","containerStatuses":[{"state":{"waiting":
			{"reason":"ImagePullBackOff","message":"no such image"}}}]`)
	}, verdict.Wrong, []string{"agent: its pod waits in ImagePullBackOff: no such image",
		"kubectl get pods -n kube-system -o wide, and see kubectl describe pod"}},
	"an agent that is pending": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, `"phase":"Pending","message":"Too many pods"`)
	}, verdict.Wrong, []string{"is Pending: Too many pods"}},
	"not ready, and only the condition says why": {func(t *testing.T, a *fake) {
		a.replaceAgent(t, `"phase":"Running"`)
		delete(a.pages, "agent-node-1/metrics")
		a.lists[nodesPath][0]["status"] = object(t, `{"conditions":[{"type":"SidecarCNIReady",
			"status":"False","reason":"OtherMesh","message":"istio-cni is there"}]}`)
	}, verdict.Wrong, []string{"not ready: OtherMesh: istio-cni is there"}},
	"not ready, and nothing says why": {func(t *testing.T, a *fake) {
		a.pages["agent-node-1/metrics"] = answer{text: ""}
		a.replaceAgent(t, `"phase":"Running"`)
		a.pages["agent-node-1/readyz"] = answer{http.StatusServiceUnavailable, "not ready: it starts"}
	}, verdict.Wrong, []string{"not ready: it starts remedy: on the node, sidecarctl node shows"}},
	"taken out": {func(_ *testing.T, a *fake) {
		a.pages["agent-node-1/metrics"] = answer{text: chainState("uninstalled")}
	}, verdict.Wrong, []string{"not ready: uninstalled", "helm rollback"}},
	"an old condition": {func(t *testing.T, a *fake) {
		a.lists[nodesPath][0]["status"] = object(t, `{"conditions":[{"type":"SidecarCNIReady",
			"status":"False","reason":"NoNetwork"}]}`)
	}, verdict.Warning, []string{"SidecarCNIReady is False, and the agent's pod is ready"}},
	"a taint that stays": {func(t *testing.T, a *fake) {
		a.lists[nodesPath][0]["spec"] = object(t, `{"taints":[{"key":"sidecar-cni.io/not-ready",
			"effect":"NoSchedule"}]}`)
	}, verdict.Wrong, []string{"kubectl taint node node-1 sidecar-cni.io/not-ready-"}},
	"metrics that are out of reach": {func(_ *testing.T, a *fake) {
		delete(a.pages, "agent-node-1/metrics")
	}, verdict.Unknown, []string{"metrics: not read", "NetworkPolicy"}},
	"metrics that have no end": {func(_ *testing.T, a *fake) {
		a.metrics("node-1", strings.Repeat("x", maxPage))
	}, verdict.Unknown, []string{"metrics: not read: it is larger than 1 MiB"}},
	"pods without redirection": {func(_ *testing.T, a *fake) {
		a.metrics("node-1", `sidecar_cni_checked_pods{finding="missing"} 2`)
	}, verdict.Wrong, []string{"2 pods without redirection", "sidecarctl verify -A"}},
	"counters": {func(_ *testing.T, a *fake) {
		a.metrics("node-1", `sidecar_cni_checked_pods{finding="altered"} 1
sidecar_cni_repairs_total{result="failed"} 3
sidecar_cni_commands_total{command="ADD",outcome="failed",reason="bad_annotations"} 4
sidecar_cni_guard_connected 0
sidecar_cni_guard_sandboxes_total{when="connect",outcome="open"} 1
sidecar_cni_guard_sandboxes_total{when="start",outcome="open"} 1
sidecar_cni_chain_conflicts_total{file="05-cilium.conflist"} 5
sidecar_cni_cache_synced 0
sidecar_cni_last_pass_timestamp_seconds 1.799998e+09
sidecar_cni_token_expiry_timestamp_seconds 1.80000006e+09
`)
	}, verdict.Warning, []string{"1 pod with other rules", "3 failed since", "4 for bad_annotations",
		"not connected to the runtime", "2 starts open since", "out of 05-cilium.conflist",
		"not heard of its pods", "not looked at its node for 33m20s", "runs out in 1m0s"}},
	"another writer, by an Event": {func(t *testing.T, a *fake) {
		a.lists[eventsPath] = append(a.lists[eventsPath], object(t, `{"source":{"component":
			"sidecar-cni"},"involvedObject":{"kind":"Node","name":"node-1"},"type":"Warning",
			"reason":"SidecarChainConflict","message":"a\u001b[31m writer"}`))
	}, verdict.Warning, []string{`SidecarChainConflict: a'\x1b'[31m writer`}},
	"a pod that the agent reports": {func(t *testing.T, a *fake) {
		a.waitingPod(t, "shop", "web-1", "Failed to create pod sandbox: other plugin")
		a.lists[eventsPath] = append(a.lists[eventsPath], object(t, `{"source":{"component":
			"sidecar-cni"},"involvedObject":{"kind":"Pod","uid":"uid-web-1"},"type":"Warning",
			"reason":"SidecarRedirectFailed","message":"no; remedy: yes"}`))
	}, verdict.Wrong, []string{"pod shop/web-1: waits in ContainerCreating: no", "remedy: yes"}},
}

func TestSituations(t *testing.T) {
	t.Parallel()
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t, "node-1")
			s.make(t, a)
			r := lookAt(t, a, false)
			out := text(t, r)
			if len(r.Nodes) != 1 || r.Nodes[0].Verdict != s.verdict || r.Fine != 0 ||
				r.Wrong() != (s.verdict == verdict.Wrong) {
				t.Errorf("want verdict %s:\n%s", s.verdict, out)
			}
			flat := strings.Join(strings.Fields(out), " ")
			for _, want := range s.want {
				if !strings.Contains(flat, want) {
					t.Errorf("want %q in:\n%s", want, out)
				}
			}
		})
	}
}

// A pod that waits for somebody else is not ours to report.
func TestOtherPodsThatWait(t *testing.T) {
	t.Parallel()
	a := healthy(t, "node-1")
	a.waitingPod(t, "shop", "web-0", `plugin type=\"calico\" failed (add): no`)
	if r := lookAt(t, a, false); r.Wrong() || r.Fine != 1 {
		t.Errorf("%s", text(t, r))
	}
}

func TestWhatMayNotBeRead(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		forbidden []string
		nodes     int
		want      []string
	}{
		"nodes": {[]string{nodesPath}, 1, []string{"nodes unknown you may not list nodes"}},
		"daemonsets": {[]string{daemonSetsPath}, 1, []string{
			"daemonset unknown you may not list daemonsets.apps", "1 agent found"}},
		"events": {[]string{eventsPath}, 1, []string{"events unknown you may not list events"}},
		"proxy": {[]string{"/proxy/metrics"}, 1, []string{
			"metrics unknown you may not read the pages of agents",
			"the verb get for pods/proxy in namespace kube-system"}},
		"pods": {[]string{podsPath}, 1, []string{"agents unknown you may not list pods",
			"waiting pods unknown", "agent: agents were not listed"}},
		"anything": {[]string{"/"}, 0, []string{"nodes unknown", "daemonset unknown",
			"agents unknown", "events unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t, "node-1")
			a.forbidden = s.forbidden
			r := lookAt(t, a, true)
			out := strings.Join(strings.Fields(text(t, r)), " ")
			if len(r.Nodes) != s.nodes || r.Wrong() {
				t.Errorf("%d nodes: %s", len(r.Nodes), out)
			}
			for _, want := range s.want {
				if !strings.Contains(out, want) {
					t.Errorf("want %q in:\n%s", want, out)
				}
			}
		})
	}
}

// Who may not read the pages of one agent is not told so by each.
func TestForbiddenPagesAreNotAskedForAgain(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("node-%02d", i))
	}
	a := healthy(t, names...)
	a.forbidden = []string{"/proxy/metrics"}
	r := lookAt(t, a, false)
	asked := slices.DeleteFunc(a.asks, func(p string) bool { return !strings.Contains(p, "/proxy/") })
	if len(asked) > atOnce || verdict.Count(r.Rows, verdict.Unknown) != 1 || r.Fine != 100 {
		t.Errorf("%d pages asked for: %s", len(asked), text(t, r))
	}
}

func TestTolerations(t *testing.T) {
	t.Parallel()
	gpu := taint{"gpu", "a", "NoSchedule"}
	for name, row := range map[string]struct {
		taint taint
		by    []toleration
		want  bool
	}{
		"none":              {gpu, nil, false},
		"all":               {gpu, []toleration{{Operator: "Exists"}}, true},
		"all of an effect":  {gpu, []toleration{{Operator: "Exists", Effect: "NoExecute"}}, false},
		"the key":           {gpu, []toleration{{Key: "gpu", Operator: "Exists"}}, true},
		"the value":         {gpu, []toleration{{Key: "gpu", Value: "a", Effect: "NoSchedule"}}, true},
		"another value":     {gpu, []toleration{{Key: "gpu", Value: "b"}}, false},
		"another key":       {gpu, []toleration{{Key: "cpu", Operator: "Exists"}}, false},
		"no key, no Exists": {gpu, []toleration{{}}, false},
		"a preference":      {taint{"x", "", "PreferNoSchedule"}, nil, true},
		"a node in trouble": {taint{"node.kubernetes.io/unreachable", "", "NoExecute"}, nil, true},
	} {
		if got := row.taint.tolerated(row.by); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestServersThatAnswerNothing(t *testing.T) {
	t.Parallel()
	for want, fault := range map[string]http.HandlerFunc{
		"log in again": func(w http.ResponseWriter, _ *http.Request) {
			status(w, http.StatusUnauthorized, "Unauthorized")
		},
		"not what was asked for": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "<html>")
		},
		"nodes were not read": func(w http.ResponseWriter, _ *http.Request) {
			status(w, http.StatusInternalServerError, "InternalError")
		},
	} {
		a := &fake{fault: fault}
		if _, err := Look(t.Context(), a.serve(t), Options{Now: now}); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func TestAServerThatIsNotReached(t *testing.T) {
	t.Parallel()
	var gone *rest.RESTClient
	t.Run("a server that ends", func(t *testing.T) { gone = (&fake{}).serve(t) })
	_, err := Look(t.Context(), gone, Options{Now: now})
	if err == nil || strings.Contains(err.Error(), "http://") ||
		!strings.Contains(err.Error(), "nodes were not read: API server 127.0.0.1:") ||
		!strings.HasSuffix(err.Error(), "; check the kubeconfig's context and the network, as by "+
			"kubectl cluster-info") {
		t.Errorf("got %v", err)
	}
}

// A thousand nodes come in pages, and what is wrong with all of them is not written a thousand
// times.
func TestThousandNodes(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1_000 {
		names = append(names, fmt.Sprintf("node-%04d", i))
	}
	a := healthy(t, names...)
	for _, name := range names[:100] {
		a.metrics(name, `sidecar_cni_checked_pods{finding="missing"} 1`)
	}
	a.metrics("node-0500", "sidecar_cni_guard_connected 0\n")
	r := lookAt(t, a, false)
	out := text(t, r)
	if r.Fine != 899 || r.count(verdict.Wrong) != 100 || len(r.Nodes) != 101 {
		t.Errorf("fine %d, wrong %d, listed %d", r.Fine, r.count(verdict.Wrong), len(r.Nodes))
	}
	flat := strings.Join(strings.Fields(out), " ")
	if n := strings.Count(out, "\n"); n > 20 ||
		!strings.Contains(flat, "also node-0001, node-0002, node-0003, node-0004 and 95 more") ||
		strings.Contains(out, "way dropin") || !strings.Contains(flat, "node-0500 warning") {
		t.Errorf("%d lines:\n%s", n, out)
	}
	if n := len(slices.DeleteFunc(a.asks, func(p string) bool { return p != nodesPath })); n != 2 {
		t.Errorf("nodes were asked for %d times, want 2", n)
	}
	for i, name := range names[600:700] { // no two alike
		a.metrics(name, fmt.Sprintf("sidecar_cni_checked_pods{finding=\"missing\"} %d", i+2))
	}
	out = text(t, lookAt(t, a, false))
	if n := strings.Count(out, "\n"); n > 300 || !strings.Contains(out, "52 nodes more") ||
		!strings.Contains(out, "node-0648") || strings.Contains(out, "node-0649") {
		t.Errorf("%d lines:\n%s", n, out)
	}
	if out := text(t, lookAt(t, a, true)); !strings.Contains(out, "node-0999") {
		t.Error("--all does not list all")
	}
}

// The usual failure is the same on all nodes, and is said once.
func TestThousandNodesWithoutTheImage(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1_000 {
		names = append(names, fmt.Sprintf("node-%04d", i))
	}
	a := healthy(t, names...)
	a.lists[podsPath] = nil
	for _, name := range names {
		a.agent(t, name, `"phase":"Pending","containerStatuses":[{"state":{"waiting":
			{"reason":"ImagePullBackOff","message":"no such image"}}}]`)
	}
	out := text(t, lookAt(t, a, false))
	if n := strings.Count(out, "\n"); n > 12 || !strings.Contains(out, "and 995 more") {
		t.Errorf("%d lines:\n%s", n, out)
	}
}

func TestDaemonSets(t *testing.T) {
	t.Parallel()
	a := healthy(t, "node-1")
	a.lists[daemonSetsPath] = append(a.lists[daemonSetsPath], a.lists[daemonSetsPath][0])
	if out := text(t, lookAt(t, a, false)); !strings.Contains(out, "there are several") {
		t.Error(out)
	}
	a.lists[daemonSetsPath] = nil
	r := lookAt(t, a, false)
	if out := text(t, r); !strings.Contains(out, "there is none with the label") || !r.Wrong() {
		t.Error(out)
	}
	a = healthy(t, "node-1")
	a.daemonSet(t, `"desiredNumberScheduled":2,"numberReady":1`)
	if out := text(t, lookAt(t, a, false)); !strings.Contains(out, "1 of 2 agents ready") ||
		!strings.Contains(out, "warning") {
		t.Error(out)
	}
	a = healthy(t, "node-1")
	for _, path := range []string{daemonSetsPath, podsPath} {
		inside := strings.Replace(path, "v1/", "v1/namespaces/mesh/", 1)
		a.lists[inside], a.lists[path] = a.lists[path], []map[string]any{}
	}
	r, err := Look(t.Context(), a.serve(t), Options{Now: now, Namespace: "mesh"})
	if err != nil || r.Wrong() || r.Fine != 1 {
		t.Errorf("in a namespace: %v, %s", err, text(t, r))
	}
}

// During an update a node has two agents, and the one that is ready counts.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	a := healthy(t, "node-1")
	a.agent(t, "node-1", `"phase":"Pending"`)
	last := a.lists[podsPath][1]["metadata"].(map[string]any)
	last["name"], last["creationTimestamp"] = "agent-young", "2026-01-02T00:00:00Z"
	if r := lookAt(t, a, true); r.Nodes[0].Agent.Pod != "kube-system/agent-node-1" {
		t.Errorf("%+v", r.Nodes[0])
	}
	slices.Reverse(a.lists[podsPath])
	if r := lookAt(t, a, true); r.Nodes[0].Agent.Pod != "kube-system/agent-node-1" {
		t.Errorf("in the other order: %+v", r.Nodes[0])
	}
	leaving := a.lists[podsPath][1]["metadata"].(map[string]any)
	leaving["deletionTimestamp"] = "2026-01-02T00:00:00Z"
	if r := lookAt(t, a, true); r.Nodes[0].Agent.Pod != "kube-system/agent-young" {
		t.Errorf("of which one leaves: %+v", r.Nodes[0])
	}
	a.lists[podsPath] = a.lists[podsPath][1:]
	if r := lookAt(t, a, true); r.Nodes[0].Agent.Pod != "kube-system/agent-node-1" {
		t.Errorf("one that leaves, alone: %+v", r.Nodes[0])
	}
	a.lists[podsPath] = nil
	a.agent(t, "node-1", `"phase":"Failed"`)
	if r := lookAt(t, a, true); r.Nodes[0].Agent != nil {
		t.Errorf("%+v", r.Nodes[0])
	}
}

// Labels anybody can set, on pods and DaemonSets of his own.
func TestPodsThatPretendToBeAgents(t *testing.T) {
	t.Parallel()
	a := healthy(t, "node-1")
	evil := object(t, `{"metadata":{"namespace":"shop","name":"evil",
		"creationTimestamp":"2026-02-01T00:00:00Z","labels":{"app.kubernetes.io/name":"sidecar-cni",
			"app.kubernetes.io/component":"agent"}},"spec":{"nodeName":"node-1"},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	a.lists[podsPath] = append(a.lists[podsPath], evil)
	a.lists[daemonSetsPath] = append(a.lists[daemonSetsPath], evil)
	a.pages["evil/metrics"] = a.pages["agent-node-1/metrics"]
	r := lookAt(t, a, true)
	if r.Nodes[0].Agent.Pod != "kube-system/agent-node-1" || r.Fine != 1 || r.Wrong() ||
		slices.ContainsFunc(a.asks, func(path string) bool { return strings.Contains(path, "evil") }) {
		t.Errorf("asked for %q:\n%s", a.asks, text(t, r))
	}
	evil["spec"] = object(t, `{"nodeName":"node-1",`+runDir+`}`)
	out := strings.Join(strings.Fields(text(t, lookAt(t, a, false))), " ")
	if !strings.Contains(out, "agents unknown pods of namespaces kube-system and shop are labelled as agents: "+
		"name the one where sidecar-cni is installed by --agent-namespace") ||
		!strings.Contains(out, "agents were not listed") {
		t.Errorf("in two namespaces: %s", out)
	}
}

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	page := `# HELP x y
sidecar_cni_a 1
sidecar_cni_b{} 2
sidecar_cni_c{x="a\"b\\c\nd",y="}"} 3.5e+01 1700000000
sidecar_cni_d{x="open 4
sidecar_cni_e{x="a"}
sidecar_cni_f text
other 5
`
	want := samples{{"sidecar_cni_a", map[string]string{}, 1},
		{"sidecar_cni_b", map[string]string{}, 2},
		{"sidecar_cni_c", map[string]string{"x": "a\"b\\c\nd", "y": "}"}, 35}}
	if diff := cmp.Diff(want, parseMetrics(page), cmp.AllowUnexported(sample{})); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func chainState(reason string) string {
	return fmt.Sprintf("sidecar_cni_chain_state{reason=%q,way=\"\"} 1\n", reason)
}

// replaceAgent gives node-1's agent another status; "" takes it away.
func (a *fake) replaceAgent(t *testing.T, status string) {
	t.Helper()
	a.lists[podsPath] = a.lists[podsPath][1:]
	if status != "" {
		a.agent(t, "node-1", status)
	}
}

func (a *fake) daemonSet(t *testing.T, status string) {
	t.Helper()
	a.lists[daemonSetsPath][0]["status"] = object(t, "{%s}", status)
}

// waitingPod puts a pod on node-1 about whose sandbox the kubelet has said something.
func (a *fake) waitingPod(t *testing.T, namespace, name, message string) {
	t.Helper()
	a.lists[podsPath] = append(a.lists[podsPath], object(t, `{"metadata":{"namespace":%q,
		"name":%q,"uid":"uid-%[2]s"},"spec":{"nodeName":"node-1"},"status":{"phase":"Pending",
		"containerStatuses":[{"state":{"waiting":{"reason":"ContainerCreating"}}}]}}`,
		namespace, name))
	a.lists[eventsPath] = append(a.lists[eventsPath], object(t, `{"source":{"component":"kubelet"},
		"involvedObject":{"kind":"Pod","uid":"uid-%s"},"type":"Warning",
		"reason":"FailedCreatePodSandBox","message":"%s"}`, name, message))
}
