package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
	"github.com/sidecar-cni/sidecar-cni/plugin/podsource"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// startServer serves until the test ends, and returns the socket's path.
func startServer(t *testing.T, r *rig) string {
	t.Helper()
	socket := listenAt(t, filepath.Join(folder(t), "run", "agent.sock"))
	server := NewServer(r.known(), r.events, r.reg, zap.NewNop())
	run(t, func(ctx context.Context) {
		if err := server.Serve(ctx, socket); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return socket.path
}

// known is what a server answers from, beside one runtime class.
func (r *rig) known() Known {
	return Known{Pods: r.pods,
		Handler: func(class string) string { return map[string]string{"vm": "kata-qemu"}[class] }}
}

// send sends a request as a client of any kind would, and returns status and body.
func send(t *testing.T, socket, method, uri, body string) (int, []byte) {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequest(method, "http://agent"+uri, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, data
}

func status(t *testing.T, socket, method, uri, body string) int {
	t.Helper()
	code, _ := send(t, socket, method, uri, body)
	return code
}

// The plugin's own client is the judge.
func TestThePluginIsAnswered(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		known []*corev1.Pod
		ref   podsource.Ref
		want  podsource.Class // none: found
		words string
	}{
		"the pod": {
			known: []*corev1.Pod{meshed("web-0", "5d1c")},
			ref:   podsource.Ref{Namespace: "shop", Name: "web-0", UID: "5d1c"},
		},
		"a pod of an odd name": {
			known: []*corev1.Pod{meshed("web 0?x", "a&b=c")},
			ref:   podsource.Ref{Namespace: "shop", Name: "web 0?x", UID: "a&b=c"},
		},
		"that there is none": {
			ref: podsource.Ref{Namespace: "shop", Name: "web-0", UID: "5d1c"}, want: podsource.Gone,
		},
		"that there is another": {
			known: []*corev1.Pod{meshed("web-0", "a1da")},
			ref:   podsource.Ref{Namespace: "shop", Name: "web-0", UID: "5d1c"},
			want:  podsource.Gone, words: `uid "a1da"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := overSockets(t)
			r.api.Put(test.known...)
			r.synced(t)
			sources := podsource.Sources{AgentSocket: startServer(t, r),
				Kubeconfig: r.api.Kubeconfig()}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			found, err := sources.Find(ctx, test.ref)
			if test.want == "" {
				want := podsource.Found{
					Pod: facts(t, strip(test.known[0])), UID: test.ref.UID,
					From: podsource.FromAgent,
				}
				if diff := cmp.Diff(want, found); diff != "" || err != nil {
					t.Errorf("error %v, found (-want +got):\n%s", err, diff)
				}
				return
			}
			var failure *podsource.Error
			if !asError(err, &failure) || failure.Class != test.want ||
				!strings.Contains(fmt.Sprint(failure.Agent), test.words) {
				t.Errorf("error %v; want class %q, and from the agent %q", err, test.want,
					test.words)
			}
		})
	}
}

func asError(err error, target **podsource.Error) bool {
	e, ok := err.(*podsource.Error) //nolint:errorlint // that is its documented type
	*target = e
	return ok
}

func TestThePluginHearsWhyTheAgentCannotTell(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	r.api.Break(apiserver.Say(unauthorized()))
	sources := podsource.Sources{AgentSocket: startServer(t, r), Kubeconfig: r.api.Kubeconfig()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := sources.Find(ctx, podsource.Ref{Namespace: "shop", Name: "web-0", UID: "5d1c"})
	var failure *podsource.Error
	if !asError(err, &failure) || failure.Class != podsource.Denied ||
		!strings.Contains(fmt.Sprint(failure.Agent), "it does not know yet: the API server "+
			"answered the agent: 401 Unauthorized") {
		t.Errorf("error %v; want it denied, and the agent's reason", err)
	}
}

// All pods of a full node start before the cache is filled.
func TestAFullNodeStartsOnAColdCache(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	for i := range 110 {
		r.api.Put(meshed(fmt.Sprintf("web-%d", i), fmt.Sprintf("u%d", i)))
	}
	sources := podsource.Sources{AgentSocket: startServer(t, r), Kubeconfig: r.api.Kubeconfig()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 110 {
		all.Go(func() {
			ref := podsource.Ref{Namespace: "shop", Name: fmt.Sprintf("web-%d", i),
				UID: fmt.Sprintf("u%d", i)}
			found, err := sources.Find(ctx, ref)
			if err != nil || found.UID != ref.UID {
				t.Errorf("found %q, error %v; want %q", found.UID, err, ref.UID)
			}
		})
	}
	all.Wait()
	if got := testutil.ToFloat64(r.pods.gets.WithLabelValues(string(Found))); got < 1 {
		t.Errorf("%v live GETs, want the agent to have been asked", got)
	}
}

// The protocol's page shows a pod and three refusals, in this order.
func TestAnswersAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agent-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(
		`(?m)^    HTTP/1.1 (\d+) .*\n    Content-Type: application/json\n\n((?:    .*\n)+)`).
		FindAllSubmatch(page, -1)
	if len(examples) != 4 {
		t.Fatalf("%d examples, want 4", len(examples))
	}
	var pod corev1.Pod
	if err := json.Unmarshal(examples[0][2], &pod); err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = nodeName
	other := pod.DeepCopy()
	other.UID = "a1da4c7e-52d4-4b7e-8a53-6a3c9f6f7f0a"
	const uri = "/v2/pods/shop/web-0?uid=5d1c5f0e-7b0c-4d63-9a54-0c1d5a0f3b11"
	for i, prepare := range []func(*rig){
		func(r *rig) { r.api.Put(&pod) },
		func(*rig) {},
		func(r *rig) { r.api.Put(other) },
		func(r *rig) { r.api.Break(apiserver.Cut) },
	} {
		r := overSockets(t)
		prepare(r)
		code, body := send(t, startServer(t, r), http.MethodGet, uri, "")
		if want, _ := strconv.Atoi(string(examples[i][1])); code != want {
			t.Errorf("example %d: answered %d, want %d", i, code, want)
		}
		want, got := object(t, examples[i][2]), object(t, body)
		if said, ok := got["message"].(string); ok {
			// The sentence ends with the cause, and its time is not that of the page.
			got["message"] = regexp.MustCompile(`\d\d:\d\d:\d\d:.*`).ReplaceAllString(said,
				"12:04:31")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("example %d (-page +answered):\n%s", i, diff)
		}
	}
}

func object(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return o
}

func TestRequests(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	r.api.Put(meshed("web-0", "5d1c"))
	r.synced(t)
	socket := startServer(t, r)
	large := func(size int) string {
		const head, tail = `{"command":"DEL","outcome":"released","message":"`, `"}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	tests := map[string]struct {
		method, uri, body string
		code              int
		reason            string
	}{
		"a pod":               {"GET", "/v2/pods/shop/web-0?uid=5d1c", "", 200, ""},
		"a pod without a uid": {"GET", "/v2/pods/shop/web-0", "", 200, ""},
		"a pod and more than is known": {"GET", "/v2/pods/shop/web-0?uid=5d1c&more=1", "", 200,
			""},
		"health": {"GET", "/v1/healthz", "", 200, ""},
		"another pod": {"GET", "/v2/pods/shop/web-1?uid=5d1c", "", 404,
			"absent"},
		"another uid":                 {"GET", "/v2/pods/shop/web-0?uid=a1da", "", 404, "uid"},
		"a name with a slash":         {"GET", "/v2/pods/shop/web%2f0", "", 400, "malformed"},
		"a name that leads elsewhere": {"GET", "/v2/pods/%2e%2e/nodes", "", 400, "malformed"},
		"a pod in an unknown version": {"GET", "/v3/pods/shop/web-0", "", 404, "path"},
		"a pod without a namespace":   {"GET", "/v2/pods/web-0", "", 404, "path"},
		"a pod to be deleted":         {"DELETE", "/v2/pods/shop/web-0", "", 404, "path"},
		"an outcome": {"POST", "/v1/outcomes",
			`{"command":"ADD","outcome":"redirected"}`, 204, ""},
		"an outcome with unknown fields": {"POST", "/v1/outcomes",
			`{"command":"ADD","outcome":"redirected","new":{"a":1}}`, 204, ""},
		"an outcome of the largest size": {"POST", "/v1/outcomes", large(64 << 10), 204, ""},
		"an outcome of a larger one": {"POST", "/v1/outcomes", large(64<<10 + 1), 400,
			"malformed"},
		"an outcome without a command": {"POST", "/v1/outcomes", `{"outcome":"redirected"}`, 400,
			"malformed"},
		"an outcome without an outcome": {"POST", "/v1/outcomes", `{"command":"ADD"}`, 400,
			"malformed"},
		"an outcome of another type": {"POST", "/v1/outcomes",
			`{"command":1,"outcome":"redirected"}`, 400, "malformed"},
		"an outcome with an odd phase": {"POST", "/v1/outcomes",
			`{"command":"ADD","outcome":"redirected","phases":{"find":"2ms"}}`, 400, "malformed"},
		"an outcome and more": {"POST", "/v1/outcomes",
			`{"command":"ADD","outcome":"redirected"}{}`, 400, "malformed"},
		"an outcome that is null":    {"POST", "/v1/outcomes", `null`, 400, "malformed"},
		"an outcome that is a list":  {"POST", "/v1/outcomes", `[]`, 400, "malformed"},
		"an outcome that breaks off": {"POST", "/v1/outcomes", `{"command":`, 400, "malformed"},
		"no outcome at all":          {"POST", "/v1/outcomes", ``, 400, "malformed"},
		"outcomes":                   {"GET", "/v1/outcomes", ``, 404, "path"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, body := send(t, socket, test.method, test.uri, test.body)
			if code != test.code {
				t.Fatalf("answered %d with %s, want %d", code, body, test.code)
			}
			if test.reason != "" && object(t, body)["reason"] != test.reason {
				t.Errorf("answered %s, want reason %q", body, test.reason)
			}
		})
	}
}

func TestOutcomesOfThePluginAreCounted(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	run(t, r.events.Run)
	sources := podsource.Sources{AgentSocket: startServer(t, r)}
	// It connects, writes and is gone: nobody reads the answer. In 20 ms under load it may not come
	// through.
	await.Until(t, "an outcome", func() bool {
		sources.Report(protocol.Outcome{
			Command: "ADD", Namespace: "shop", Name: "web-0", UID: "5d1c", Outcome: "failed",
			Reason:  "denied",
			Message: "read pod shop/web-0 (2ms): access denied",
			Phases:  map[string]float64{"find": 0.0021},
		})
		return testutil.CollectAndCount(r.reg, "sidecar_cni_commands_total") > 0
	})
	await.Until(t, "an Event", func() bool { return len(r.api.Events()) == 1 })
	event := r.api.Events()[0]
	got := []any{event.Type, event.Reason, event.Message, event.Source, event.InvolvedObject}
	want := []any{
		"Warning", "SidecarRedirectFailed", "read pod shop/web-0 (2ms): access denied",
		corev1.EventSource{Component: "sidecar-cni", Host: nodeName},
		corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0",
			UID: "5d1c"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestAClientThatHangsUpIsHeard(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	socket := startServer(t, r)
	const body = `{"command":"GC","outcome":"collected"}`
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST /v1/outcomes HTTP/1.1\r\nHost: agent\r\nConnection: "+
		"close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	await.Until(t, "an outcome",
		func() bool { return testutil.CollectAndCount(r.reg, "sidecar_cni_commands_total") == 1 })
}

func TestWhatBecomesAnEvent(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	run(t, r.events.Run)
	socket := startServer(t, r)
	want := []string{"add SidecarRedirectFailed", "check SidecarCheckFailed",
		"del SidecarReleaseFailed", "last SidecarCheckFailed"}
	for _, test := range []struct{ command, outcome, pod string }{
		{"ADD", "failed", "add"}, {"CHECK", "failed", "check"}, {"DEL", "failed", "del"},
		{"ADD", "redirected", "redirected"}, {"ADD", "skipped", "skipped"},
		{"ADD", "failed", ""}, {"STATUS", "failed", "status"},
		{"CHECK", "failed", "last"}, // what is before it has been written when it is
	} {
		body := fmt.Sprintf(`{"command":%q,"outcome":%q,"namespace":"shop","name":%q}`,
			test.command, test.outcome, test.pod)
		if got := status(t, socket, http.MethodPost, "/v1/outcomes",
			body); got != http.StatusNoContent {
			t.Errorf("%+v: answered %d, want 204", test, got)
		}
	}
	written := func() []string {
		var all []string
		for _, e := range r.api.Events() {
			all = append(all, e.InvolvedObject.Name+" "+e.Reason)
		}
		slices.Sort(all)
		return all
	}
	await.Until(t, "the last event", func() bool { return slices.Contains(written(), want[3]) })
	if diff := cmp.Diff(want, written()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestConventionsOfPrometheus(t *testing.T) {
	t.Parallel()
	r := overSockets(t)
	r.api.Put(meshed("web-0", "5d1c"))
	r.synced(t)
	socket := startServer(t, r)
	status(t, socket, http.MethodGet, "/v2/pods/shop/web-0", "")
	status(t, socket, http.MethodPost, "/v1/outcomes",
		`{"command":"ADD","outcome":"redirected","phases":{"find":0.0003,"apply":0.02}}`)
	problems, err := testutil.GatherAndLint(r.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("error %v, problems %+v", err, problems)
	}
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		got = append(got, f.GetName())
	}
	want := []string{
		"sidecar_cni_cache_failures_total", "sidecar_cni_cache_synced", "sidecar_cni_cached_pods",
		"sidecar_cni_command_phase_duration_seconds", "sidecar_cni_commands_total",
		"sidecar_cni_events_total",
		"sidecar_cni_live_gets_total", "sidecar_cni_socket_requests_total",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	const state = `
# HELP sidecar_cni_cache_synced Whether the cache has been filled since the agent started, 1 or 0.
# TYPE sidecar_cni_cache_synced gauge
sidecar_cni_cache_synced 1
# HELP sidecar_cni_cached_pods Pods of this node in the agent's cache.
# TYPE sidecar_cni_cached_pods gauge
sidecar_cni_cached_pods 1
# HELP sidecar_cni_socket_requests_total Requests on the agent's socket, by what was asked for and the status of the answer.
# TYPE sidecar_cni_socket_requests_total counter
sidecar_cni_socket_requests_total{code="200",path="pods"} 1
sidecar_cni_socket_requests_total{code="204",path="outcomes"} 1
`
	err = testutil.GatherAndCompare(r.reg, strings.NewReader(state),
		"sidecar_cni_cache_synced", "sidecar_cni_cached_pods", "sidecar_cni_socket_requests_total")
	if err != nil {
		t.Error(err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /v2/pods/shop/web-0?uid=5d1c HTTP/1.1\r\nHost: agent\r\n\r\n"))
	f.Add([]byte("POST /v1/outcomes HTTP/1.1\r\nHost: agent\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("GET /v2/pods/%2e%2e/%00 HTTP/1.0\r\n\r\n"))
	reg := prometheus.NewRegistry()
	api := apiserver.Start(f)
	client, err := NewClient(api.Config())
	if err != nil {
		f.Fatal(err)
	}
	server := NewServer(Known{Pods: NewPods(client, nodeName, reg, zap.NewNop())},
		NewEvents(client, nodeName, reg, zap.NewNop()), reg, zap.NewNop())
	handler := server.handler()
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		one := &http.Server{Handler: handler, ReadTimeout: time.Second,
			ErrorLog: zap.NewStdLog(zap.NewNop())}
		l := &single{conn: theirs, closed: make(chan struct{})}
		done := make(chan struct{})
		go func() { defer close(done); _ = one.Serve(l) }()
		go func() { _, _ = ours.Write(data); _, _ = ours.Write([]byte("\r\n\r\n")) }()
		_ = ours.SetReadDeadline(time.Now().Add(5 * time.Second))
		answer := make([]byte, 12)
		if n, _ := io.ReadFull(ours, answer); n == len(answer) &&
			!bytes.HasPrefix(answer, []byte("HTTP/1.")) {
			t.Errorf("answered %q to %q", answer, data)
		} else if bytes.HasSuffix(answer, []byte(" 500")) {
			t.Errorf("answered 500 to %q", data)
		}
		ours.Close()
		_ = one.Close()
		<-done
	})
}

// single is a listener of one connection.
type single struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *single) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *single) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "agent"} }
