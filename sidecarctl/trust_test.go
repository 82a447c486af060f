package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/exec"
)

// What an agent answers may be anything: it is bounded, it is about the pod that was asked about,
// and an agent that ends in the middle has not said that all is well.
func TestAnswersOfAgents(t *testing.T) {
	t.Parallel()
	killed := exec.CodeExitError{Err: errors.New("killed"), Code: 137}
	verify := []string{"verify", "shop/web-0"}
	for name, row := range map[string]struct {
		api  apiServer
		args []string
		want string
	}{
		"too long":          {apiServer{says: strings.Repeat("x", 1<<20), endless: true}, verify, "larger than 64 MiB"},
		"no JSON":           {apiServer{says: "hello"}, verify, "may be of another version"},
		"about nobody":      {apiServer{says: "[{}]"}, verify, `asked about shop/web-0 and answered about ""`},
		"about none":        {apiServer{says: "[]"}, verify, "answered about 0 pods of 1"},
		"killed":            {apiServer{says: "[", exec: killed}, verify, "the command ended with 137"},
		"killed in a watch": {apiServer{says: "\n", exec: killed}, []string{"watch", "shop/web-0"}, "137"},
		"killed in a trace": {apiServer{says: "\n", exec: killed},
			[]string{"trace", "shop/web-0", "--wait", "--to=192.0.2.7:80"}, "137"},
		"a line without an end": {apiServer{says: strings.Repeat("x", 1<<20), endless: true},
			[]string{"trace", "shop/web-0", "--wait", "--to=192.0.2.7:80"}, "a line of it has more than 4 MiB"},
		"nobody on the node": {apiServer{}, []string{"verify", "--node=node-9"}, `no pod runs on node "node-9"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := row.api
			c.objects = map[string]string{webPath: web(""), "/api/v1/pods": `{"items": []}`}
			out, stderr, code := c.ask(t, row.args...)
			if code != exitError || out != "" || !strings.Contains(stderr, row.want) ||
				strings.Count(stderr, "\n") != 1 {
				t.Errorf("%d, %s%s; want %s", code, out, stderr, row.want)
			}
		})
	}
}

// Without its node a pod may have anything: it is not called equal to what it asks for.
func TestCompareWithoutTheNode(t *testing.T) {
	t.Parallel()
	c := &apiServer{objects: map[string]string{webPath: web(""), "agents": "{}"}}
	for _, args := range [][]string{{"shop/web-0"}, {"shop/web-0", "shop/web-0"},
		{"testdata/web.yaml", "shop/web-0"}} {
		_, stderr, code := c.ask(t, append([]string{"compare"}, args...)...)
		if code != exitError || !strings.Contains(stderr, "what shop/web-0 started with is not known") {
			t.Errorf("%q: %d, %s", args, code, stderr)
		}
	}
}

// Labels anybody can set, on a pod of his own.
func TestPodsThatPretendToBeAgents(t *testing.T) {
	t.Parallel()
	const untrusted = `{"items": [{"metadata": {"namespace": "tenant", "name": "evil",
		"creationTimestamp": "2026-02-01T00:00:00Z"}, "spec": {"nodeName": "node-1"},
		"status": {"phase": "Running"}}]}`
	for name, row := range map[string]struct{ agents, want string }{
		"without the run directory": {untrusted, "no agent of sidecar-cni runs on node node-1"},
		"in another namespace": {strings.Replace(agentList, `"items": [`,
			`"items": [{"metadata": {"namespace": "tenant", "name": "evil"},
			"spec": {"nodeName": "node-1", "volumes": [{"hostPath": {"path": "/run/sidecar-cni"}}]},
			"status": {"phase": "Running"}},`, 1), "name the one where sidecar-cni is installed"},
	} {
		c := &apiServer{objects: map[string]string{webPath: web(""), "agents": row.agents}}
		if _, stderr, code := c.ask(t, "verify", "shop/web-0"); code != exitError ||
			!strings.Contains(stderr, row.want) {
			t.Errorf("%s: %d, %s; want %s", name, code, stderr, row.want)
		}
	}
}

// A trap is a server that nobody must ask: it would have the administrator's token.
func trap(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked for %s with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The author of a pod says who owns it. No name of his leads to a pod of his.
func TestOwnerThatLeadsToAPod(t *testing.T) {
	t.Parallel()
	asked := false
	pod := strings.Replace(web(""), `"name": "web",`,
		`"name": "../../../../../../api/v1/namespaces/shop/pods/evil:80/proxy/x",`, 1)
	c := &apiServer{objects: map[string]string{webPath: pod, "agents": "{}"},
		pods: func(http.ResponseWriter, *http.Request) { asked = true }}
	if _, stderr, code := c.ask(t, "explain", "shop/web-0"); code != 0 || asked {
		t.Errorf("asked the pod: %v; %d, %s", asked, code, stderr)
	}
}

// What answers through the API server sends nobody elsewhere, and nobody's token.
func TestRedirects(t *testing.T) {
	t.Parallel()
	const want = "the answer is a redirect to \"127.0.0.1:"
	away := trap(t)
	c := &apiServer{pods: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, away, http.StatusFound)
	}}
	if _, stderr, code := c.ask(t, "explain", "shop/web-0"); code != exitError || !strings.Contains(stderr, want) ||
		!strings.Contains(stderr, "is there another server at") {
		t.Errorf("an object: %d, %s; want %s", code, stderr, want)
	}
	c = &apiServer{objects: map[string]string{webPath: web("")}, away: away}
	if _, stderr, code := c.ask(t, "verify", "shop/web-0"); code != exitError ||
		!strings.Contains(stderr, "redirect not allowed") {
		t.Errorf("a command in an agent: %d, %s", code, stderr)
	}
}
