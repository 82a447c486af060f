package onnode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
)

// A server answers each request by the next page, and keeps what it was asked.
type server struct {
	pages []string
	asked []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.URL.Path+" "+strings.Join(r.URL.Query()["fieldSelector"], ""))
	page := `{"items": []}`
	if len(s.pages) > 0 {
		page, s.pages = s.pages[0], s.pages[1:]
	}
	w.Header().Set("Content-Type", "application/json")
	var status metav1.Status
	if json.Unmarshal([]byte(page), &status) == nil && status.Code > 0 {
		w.WriteHeader(int(status.Code))
	}
	_, _ = fmt.Fprint(w, page)
}

func clientOf(t *testing.T, url string) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: url,
		ContentConfig: rest.ContentConfig{
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *server) agents(t *testing.T, namespace string) onnode.Agents {
	t.Helper()
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	return onnode.Agents{Client: clientOf(t, listening.URL), Namespace: namespace}
}

// An agentPod is as much of an agent's pod as decides.
type agentPod struct {
	namespace, name, node string
	created               int // the hour
	unready, ends         bool
	phase, path           string // "" are those of an agent that runs
}

func (p agentPod) String() string {
	or := func(text, usual string) string {
		if text == "" {
			return usual
		}
		return text
	}
	ready, ends := "True", ""
	if p.unready {
		ready = "False"
	}
	if p.ends {
		ends = `"deletionTimestamp": "2026-01-02T00:00:00Z",`
	}
	return fmt.Sprintf(`{"metadata": {%s "namespace": %q, "name": %q,
		"creationTimestamp": "2026-01-01T%02d:00:00Z"},
		"spec": {"nodeName": %q, "volumes": [{"hostPath": {"path": %q}}],
			"containers": [{"name": "agent", "args": ["--way=inline"]}]},
		"status": {"phase": %q, "conditions": [{"type": "Ready", "status": %q}]}}`, ends,
		or(p.namespace, "kube-system"), p.name, p.created, p.node,
		or(p.path, "/run/sidecar-cni"), or(p.phase, "Running"), ready)
}

func page(next string, pods ...agentPod) string {
	texts := make([]string, len(pods))
	for i, p := range pods {
		texts[i] = p.String()
	}
	return fmt.Sprintf(`{"metadata": {"continue": %q}, "items": [%s]}`, next,
		strings.Join(texts, ", "))
}

const forbidden = `{"kind": "Status", "apiVersion": "v1", "code": 403, "status": "Failure",
	"reason": "Forbidden"}`

func TestTheAgentOfANode(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		pages []string
		want  string // its name, or what the error says
	}{
		"one":         {[]string{page("", agentPod{name: "a", node: "n"})}, "a"},
		"on page two": {[]string{page("next"), page("", agentPod{name: "a", node: "n"})}, "a"},
		"the ready one": {[]string{page("", agentPod{name: "a", created: 2, unready: true},
			agentPod{name: "b", created: 1})}, "b"},
		"the newest of those that are ready": {[]string{page("next", agentPod{name: "a", created: 1}),
			page("", agentPod{name: "b", created: 3}, agentPod{name: "c", created: 2})}, "b"},
		"not one that ends": {[]string{page("", agentPod{name: "a", created: 2, ends: true},
			agentPod{name: "b", created: 1})}, "b"},
		"not one that has not started": {[]string{page("", agentPod{name: "a", created: 2,
			phase: "Pending"}, agentPod{name: "b", created: 1})}, "b"},
		"not one without the run directory": {[]string{page("", agentPod{name: "a", created: 2,
			namespace: "tenant", path: "/tmp"}, agentPod{name: "b", created: 1})}, "b"},
		"none":      {[]string{page("")}, "no agent of sidecar-cni runs on node n: see kubectl"},
		"forbidden": {[]string{forbidden}, "name theirs by --agent-namespace"},
		"forbidden on page two": {[]string{page("next", agentPod{name: "a"}), forbidden},
			"name theirs by --agent-namespace"},
		"in two namespaces": {[]string{page("next", agentPod{name: "a"}),
			page("", agentPod{name: "b", namespace: "tenant"})},
			"pods of namespaces kube-system and tenant are labelled as agents: name the one"},
		"no list": {[]string{"<html>"}, "is there another server at 127.0.0.1:"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{pages: row.pages}
			pages := len(row.pages)
			agent, err := s.agents(t, "").On(t.Context(), "n")
			if got := agent.Name; err == nil && got != row.want ||
				err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%q, %v; want %q", got, err, row.want)
			}
			want := slices.Repeat([]string{"/api/v1/pods spec.nodeName=n"}, pages)
			if diff := cmp.Diff(want, s.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatAnAgentIs(t *testing.T) {
	t.Parallel()
	s := &server{pages: []string{page("", agentPod{name: "a", node: "n", namespace: "mesh"})}}
	agent, err := s.agents(t, "mesh").On(t.Context(), "")
	if err != nil || agent.Namespace != "mesh" || agent.Node != "n" || agent.Told("way") != "inline" ||
		agent.Told("wa") != "" {
		t.Errorf("%+v, %v", agent, err)
	}
	if diff := cmp.Diff([]string{"/api/v1/namespaces/mesh/pods "}, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	for want, s := range map[string]*server{"no agent of sidecar-cni runs in the cluster": {},
		`the verb list for pods in namespace "mesh"`: {pages: []string{forbidden}}} {
		if _, err := s.agents(t, "mesh").On(t.Context(), ""); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// One of each node, in the order of the nodes.
func TestEachAgent(t *testing.T) {
	t.Parallel()
	s := &server{pages: []string{
		page("next", agentPod{name: "a", node: "n-2", created: 1},
			agentPod{name: "b", node: "n-1", created: 9, unready: true}),
		page("", agentPod{name: "c", node: "n-1", created: 2},
			agentPod{name: "d", node: "n-2", created: 2}, agentPod{name: "e", node: "n-3", ends: true}),
	}}
	agents, err := s.agents(t, "").Each(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range agents {
		got = append(got, a.Node+" "+a.Name)
	}
	if diff := cmp.Diff([]string{"n-1 c", "n-2 d"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if agents, err = (&server{pages: []string{forbidden}}).agents(t, "").Each(t.Context()); err == nil ||
		len(agents) > 0 {
		t.Errorf("%+v, %v of what is forbidden", agents, err)
	}
}

// A server that nobody reaches, and one that nobody waits for.
func TestAgentsThatAreNotFound(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	a := onnode.Agents{Client: clientOf(t, gone.URL)}
	_, err := a.On(t.Context(), "n")
	if err == nil || !strings.HasPrefix(err.Error(), "find agents: API server 127.0.0.1:") ||
		!strings.Contains(err.Error(), "not reached; check the kubeconfig's context") ||
		strings.Contains(err.Error(), "http") {
		t.Errorf("not reached: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.On(ctx, "n"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
