package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/sidecar-cni/sidecar-cni/daemon/program"
)

// workloads is an API server with one DaemonSet, whose controller has done its work, or has not on
// some nodes.
type workloads struct {
	mu     sync.Mutex
	set    []byte
	pods   string
	lagged bool

	denied  int      // so many requests, before the account's rights take effect
	lists   int      // of pods, that there were
	later   string   // the pods from the third list on, if they change
	deleted []string // paths
}

// withdrawnAt is when the API server of these tests has carried out a patch.
const withdrawnAt = "2026-03-04T05:06:07Z"

// patch does what an API server does, and keeps who did it: an entry for a change of anything but
// the entries.
func (w *workloads) patch(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	set := w.set
	if r.Header.Get("Content-Type") == "application/merge-patch+json" {
		set, err = jsonpatch.MergePatch(set, body)
	} else if patch, wrong := jsonpatch.DecodePatch(body); wrong == nil {
		set, err = patch.Apply(set)
	} else {
		err = wrong
	}
	if err == nil && !bytes.Contains(body, []byte("/metadata/managedFields")) {
		change := fmt.Appendf(nil,
			`{"metadata":{"managedFields":[{"manager":"helm","time":"2026-01-01T00:00:00Z"},{"manager":%q,"time":%q,"fieldsV1":{"f:spec":{}}}]}}`,
			r.URL.Query().Get("fieldManager"), withdrawnAt)
		set, err = jsonpatch.MergePatch(set, change)
	}
	if err == nil {
		w.set = set
	}
	return err
}

func (w *workloads) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.denied > 0:
		w.denied--
		http.Error(out, "not yet", http.StatusForbidden)
	case r.URL.Path == "/api/v1/namespaces/mesh/pods" &&
		r.URL.Query().Get("labelSelector") == "app=sidecar-cni":
		if w.lists++; w.lists == 3 && w.later != "" {
			w.pods, w.lagged = w.later, false
			w.reconcile()
		}
		_, _ = io.WriteString(out, w.pods)
	case r.Method == http.MethodDelete:
		w.deleted = append(w.deleted, r.URL.Path)
		_, _ = io.WriteString(out, "{}")
	case r.URL.Path != "/apis/apps/v1/namespaces/mesh/daemonsets/sidecar-cni":
		http.NotFound(out, r)
	case r.Method == http.MethodPatch:
		if err := w.patch(r); err != nil {
			http.Error(out, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		w.reconcile()
		_, _ = out.Write(w.set)
	default:
		_, _ = out.Write(w.set)
	}
}

// reconcile is the controller's work.
func (w *workloads) reconcile() {
	ready := 2
	if w.lagged {
		ready = 1
	}
	patch := fmt.Sprintf(`{"metadata":{"generation":2},"status":{"observedGeneration":2,"desiredNumberScheduled":2,"updatedNumberScheduled":2,"numberReady":%d}}`, ready)
	w.set, _ = jsonpatch.MergePatch(w.set, []byte(patch))
}

const someSet = `{"metadata":{"generation":1,"resourceVersion":"7"},"spec":{"selector":{"matchLabels":{"app":"sidecar-cni"}},
	"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}},
	"template":{"spec":{"containers":[{"name":"other"},{"name":"agent","args":["run","--way=owned"],"image":"i"}]}}},
	"status":{"observedGeneration":1,"desiredNumberScheduled":2,"updatedNumberScheduled":2,"numberReady":2}}`

const somePods = `{"items":[
	{"spec":{"nodeName":"b","containers":[{"args":["uninstall","--stay"]}]},"status":{"conditions":[{"type":"Ready","status":"False"}]}},
	{"spec":{"nodeName":"a","containers":[{"args":["run"]}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}},
	{"spec":{"nodeName":"c","containers":[{"args":["uninstall","--stay","-x"]}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`

func withdrawn(t *testing.T, w *workloads, more ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],"clusters":[{"name":"a","cluster":{"server":%q}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := append([]string{"withdraw", "--kubeconfig", config, "--namespace", "mesh"}, more...)
	err := run(t.Context(), program.Program{Args: args, Stdout: &out, Stderr: &out})
	return out.String(), err
}

func TestWithdrawTurnsTheDaemonSetAround(t *testing.T) {
	t.Parallel()
	w := &workloads{set: []byte(someSet), pods: outPods("a", "c")}
	for range 2 { // again changes nothing
		out, err := withdrawn(t, w)
		if err != nil || out != "2 nodes are out\n" {
			t.Errorf("%v, %q", err, out)
		}
	}
	var got struct {
		Metadata struct{ ManagedFields []struct{ Manager string } }
		Spec     struct {
			UpdateStrategy, Template any
		}
	}
	if err := json.Unmarshal(w.set, &got); err != nil {
		t.Fatal(err)
	}
	containers := []any{map[string]any{"name": "other"},
		map[string]any{"name": "agent", "image": "i",
			"args": []any{"uninstall", "--stay", "--withdrawn=" + withdrawnAt, "--way=owned"}}}
	want := map[string]any{"spec": map[string]any{"containers": containers}}
	if diff := cmp.Diff(want, got.Spec.Template); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if m := got.Metadata.ManagedFields; len(m) != 1 || m[0].Manager != "helm" {
		t.Errorf("the fields are owned by %v, want Helm alone: the next upgrade would conflict", m)
	}
	strategy := map[string]any{"type": "RollingUpdate",
		"rollingUpdate": map[string]any{"maxSurge": 0.0, "maxUnavailable": "100%"}}
	if diff := cmp.Diff(strategy, got.Spec.UpdateStrategy); diff != "" {
		t.Errorf("strategy (-want +got):\n%s", diff)
	}
}

// The account's rights go last, also when nothing was to be done or nodes are left.
func TestWithdrawDeletesItsRoleBinding(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"out": nil, "no such set": {"--daemonset", "other"},
		"left": {"--timeout", "1s"}} {
		w := &workloads{set: []byte(someSet), pods: outPods("a", "c"), lagged: name == "left"}
		if out, err := withdrawn(t, w, append(more, "--binding", "mine")...); err != nil {
			t.Errorf("%s: %v, %q", name, err, out)
		}
		if diff := cmp.Diff([]string{
			"/apis/rbac.authorization.k8s.io/v1/namespaces/mesh/rolebindings/mine"},
			w.deleted); diff != "" {
			t.Errorf("%s: deleted (-want +got):\n%s", name, diff)
		}
	}
}

// outPods are pods that have taken out their nodes; without a node they were never bound.
func outPods(nodes ...string) string {
	var items []string
	for _, node := range nodes {
		ready := "True"
		if node == "" {
			ready = "False"
		}
		items = append(items, fmt.Sprintf(
			`{"spec":{"nodeName":%q,"containers":[{"args":["uninstall","--stay"]}]},
			"status":{"conditions":[{"type":"Ready","status":%q}]}}`, node, ready))
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

// unbound is a pod that the DaemonSet's controller made for a node and that is not on it.
func unbound(node, status string) string {
	return fmt.Sprintf(`{"metadata":{"name":"pod-of-%s"},"spec":{"containers":[{"args":["uninstall","--stay"]}],"affinity":{"nodeAffinity":{
		"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":[%q]}]}]}}}},
		"status":%s}`, node, node, status)
}

const unschedulable = `"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]`

// Pods for nodes that can have none, as Fargate's, are made by an older chart, and never bound.
// Others are only late.
func TestWithdrawAndPodsThatAreOnNoNode(t *testing.T) {
	t.Parallel()
	rows := map[string]struct{ status, want string }{
		"nobody has tried to place it": {`{}`, "in their chain: worker-7\n"},
		"a place is being made for it": {`{` + unschedulable + `,"nominatedNodeName":"worker-7"}`,
			"in their chain: worker-7\n"},
		"there is no place": {`{` + unschedulable + `}`, "1 nodes are out\nno pod of ours could " +
			"be scheduled on: worker-7; if an agent was ever there, run `sidecar-cni-installer " +
			"uninstall` there\n"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := strings.TrimSuffix(outPods("a"), "]}") + "," + unbound("worker-7", row.status) +
				"]}"
			out, err := withdrawn(t, &workloads{set: []byte(someSet), pods: pods, lagged: true},
				"--timeout", "20s")
			if err != nil || !strings.Contains(out, row.want) {
				t.Errorf("%v, %q, want %q", err, out, row.want)
			}
		})
	}
}

// A pod for which room is found within seconds is waited for.
func TestWithdrawWaitsForAPodThatIsPlacedLate(t *testing.T) {
	t.Parallel()
	pods := strings.TrimSuffix(outPods("a"), "]}") + "," +
		unbound("worker-7", `{`+unschedulable+`}`) + "]}"
	out, err := withdrawn(t,
		&workloads{set: []byte(someSet), pods: pods, lagged: true, later: outPods("a", "worker-7")})
	if err != nil || out != "2 nodes are out\n" {
		t.Errorf("%v, %q", err, out)
	}
}

// The Job may be started at the moment at which its rights are granted.
func TestWithdrawWaitsForItsRights(t *testing.T) {
	t.Parallel()
	out, err := withdrawn(t, &workloads{set: []byte(someSet), pods: outPods("a", "c"), denied: 2})
	if err != nil || out != "2 nodes are out\n" {
		t.Errorf("%v, %q", err, out)
	}
	if out, err := withdrawn(t, &workloads{set: []byte(someSet), denied: 1000}, "--timeout",
		"3s"); err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("rights that never come: %v, %q", err, out)
	}
}

// A node that is down must not keep anybody from deleting the DaemonSet.
func TestWithdrawNamesTheNodesThatAreLeft(t *testing.T) {
	t.Parallel()
	out, err := withdrawn(t, &workloads{set: []byte(someSet), pods: somePods, lagged: true},
		"--timeout", "2s")
	if err != nil || !strings.Contains(out, "in their chain: a, b\n") {
		t.Errorf("%v, %q", err, out)
	}
}

func TestWithdrawWithoutADaemonSet(t *testing.T) {
	t.Parallel()
	if out, err := withdrawn(t, &workloads{set: []byte(someSet)}, "--daemonset",
		"other"); err != nil || !strings.Contains(out, "daemonset mesh/other") ||
		!strings.Contains(out, "nothing to take out") {
		t.Errorf("%v, %q", err, out)
	}
	if out, err := withdrawn(t,
		&workloads{set: []byte(strings.Replace(someSet, `"run"`, `"walk"`, 1))}); err == nil ||
		!strings.Contains(err.Error(), "argument run") {
		t.Errorf("%v, %q", err, out)
	}
}
