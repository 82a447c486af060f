package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// fake is an API server of what this package asks for, with lists in pages.
type fake struct {
	lists     map[string][]map[string]any // by path
	pages     map[string]answer           // of agents, by POD/PAGE
	forbidden []string                    // paths that begin with these
	fault     http.HandlerFunc            // in place of all else

	mu   sync.Mutex
	asks []string
}

// answer is a page of an agent.
type answer struct {
	status int
	text   string
}

func (a *fake) serve(t *testing.T) *rest.RESTClient {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}]}`,
		server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	connected, err := target.Connect(file, "")
	if err != nil {
		t.Fatal(err)
	}
	return connected.Client
}

func (a *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asks = append(a.asks, r.URL.Path)
	a.mu.Unlock()
	if a.fault != nil {
		a.fault(w, r)
		return
	}
	for _, path := range a.forbidden {
		if strings.HasPrefix(r.URL.Path, path) || strings.HasSuffix(r.URL.Path, path) {
			status(w, http.StatusForbidden, "Forbidden")
			return
		}
	}
	if pod, name, ok := proxied(r.URL.Path); ok {
		p, there := a.pages[pod+"/"+name]
		if !there {
			status(w, http.StatusServiceUnavailable, "ServiceUnavailable")
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.WriteHeader(max(p.status, http.StatusOK))
		_, _ = fmt.Fprint(w, p.text)
		return
	}
	all, there := a.lists[r.URL.Path]
	if !there {
		status(w, http.StatusNotFound, "NotFound")
		return
	}
	a.list(w, r, all)
}

// proxied reads /api/v1/namespaces/NS/pods/NAME:PORT/proxy/PAGE.
func proxied(path string) (pod, page string, ok bool) {
	words := strings.Split(path, "/")
	if len(words) != 9 || words[7] != "proxy" {
		return "", "", false
	}
	pod, _, _ = strings.Cut(words[6], ":")
	return pod, words[8], true
}

func (a *fake) list(w http.ResponseWriter, r *http.Request, all []map[string]any) {
	query := r.URL.Query()
	byLabel, err1 := labels.Parse(query.Get("labelSelector"))
	byField, err2 := fields.ParseSelector(query.Get("fieldSelector"))
	if err1 != nil || err2 != nil {
		status(w, http.StatusBadRequest, "BadRequest")
		return
	}
	items := []any{}
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	next := ""
	for i, o := range all[from:] {
		if len(items) == limit {
			next = strconv.Itoa(from + i)
			break
		}
		if byLabel.Matches(labelsOf(o)) && byField.Matches(fieldsOf(o)) {
			items = append(items, o)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": "v1",
		"metadata": map[string]any{"continue": next}, "items": items})
}

func labelsOf(o map[string]any) labels.Set {
	set := labels.Set{}
	meta, _ := o["metadata"].(map[string]any)
	own, _ := meta["labels"].(map[string]any)
	for k, v := range own {
		set[k], _ = v.(string)
	}
	return set
}

func fieldsOf(o map[string]any) fields.Set {
	set := fields.Set{}
	if s, ok := o["status"].(map[string]any); ok {
		set["status.phase"], _ = s["phase"].(string)
	}
	if s, ok := o["source"].(map[string]any); ok {
		set["source"], _ = s["component"].(string)
	}
	set["reason"], _ = o["reason"].(string)
	return set
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,`+
		`"reason":%q,"message":"no"}`, code, reason)
}

// object reads what a test has written in JSON.
func object(t *testing.T, format string, args ...any) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(fmt.Appendf(nil, format, args...), &o); err != nil {
		t.Fatalf("%v in %s", err, fmt.Sprintf(format, args...))
	}
	return o
}

const (
	nodesPath      = "/api/v1/nodes"
	podsPath       = "/api/v1/pods"
	eventsPath     = "/api/v1/events"
	daemonSetsPath = "/apis/apps/v1/daemonsets"
	runDir         = `"volumes":[{"hostPath":{"path":"/run/sidecar-cni"}}]`
)

// healthy is a cluster in which all is well.
func healthy(t *testing.T, names ...string) *fake {
	t.Helper()
	a := &fake{lists: map[string][]map[string]any{nodesPath: {}, podsPath: {}, eventsPath: {}},
		pages: map[string]answer{}}
	a.lists[daemonSetsPath] = []map[string]any{object(t, `{"metadata":{"namespace":"kube-system",
		"name":"sidecar-cni","labels":{"app.kubernetes.io/name":"sidecar-cni"}},
		"spec":{"template":{"spec":{`+runDir+`,"tolerations":[{"key":"dedicated","operator":"Exists"}],
			"containers":[{"image":"agent:1.2"}]}}},
		"status":{"desiredNumberScheduled":%d,"currentNumberScheduled":%[1]d,"numberReady":%[1]d,
			"updatedNumberScheduled":%[1]d}}`, len(names))}
	for _, name := range names {
		a.lists[nodesPath] = append(a.lists[nodesPath], object(t, `{"metadata":{"name":%q},
			"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, name))
		a.agent(t, name, `"phase":"Running","conditions":[{"type":"Ready","status":"True"}]`)
		a.metrics(name, "")
	}
	return a
}

// agent gives a node an agent whose pod has a status.
func (a *fake) agent(t *testing.T, node, status string) {
	t.Helper()
	a.lists[podsPath] = append(a.lists[podsPath], object(t, `{"metadata":{
		"namespace":"kube-system","name":"agent-%s","creationTimestamp":"2026-01-01T00:00:00Z",
		"labels":{"app.kubernetes.io/name":"sidecar-cni","app.kubernetes.io/component":"agent"}},
		"spec":{"nodeName":%q,`+runDir+`,"containers":[{"image":"agent:1.2",
			"ports":[{"name":"metrics","containerPort":9466}]}]},"status":{%s}}`,
		node, node, status))
}

// metrics has an agent report that all is well, and more.
func (a *fake) metrics(node, more string) {
	a.pages["agent-"+node+"/metrics"] = answer{text: `# HELP sidecar_cni_chain_state The state.
# TYPE sidecar_cni_chain_state gauge
sidecar_cni_chain_state{reason="effective",way="dropin"} 1
sidecar_cni_chain_state{reason="no_backend",way=""} 0
sidecar_cni_commands_total{command="ADD",outcome="redirected",reason=""} 12
sidecar_cni_checked_pods{finding="redirected"} 7
sidecar_cni_backend_usable{backend="nftables"} 1
sidecar_cni_backend_usable{backend="iptables-legacy"} 0
go_goroutines 31
` + more}
}
