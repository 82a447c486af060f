package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A pod hangs in ContainerCreating, since its node has no table nat: the cluster says which node
// it is, why, and what to do; the node's own test has the module.
func TestQuestionOfThePodThatIsNotCreated(t *testing.T) {
	t.Parallel()
	const labels = `"labels":{"app.kubernetes.io/name":"sidecar-cni",` +
		`"app.kubernetes.io/component":"agent"}`
	const runDir = `{"hostPath":{"path":"/run/sidecar-cni"}}`
	answers := map[string]string{
		"/api/v1/nodes": `{"items":[{"metadata":{"name":"node-1"}}]}`,
		"/apis/apps/v1/daemonsets": `{"items":[{"metadata":{"namespace":"mesh","name":"cni",` +
			labels + `},"spec":{"template":{"spec":{"volumes":[` + runDir + `]}}},` +
			`"status":{"desiredNumberScheduled":1}}]}`,
		"/api/v1/pods": `{"items":[{"metadata":{"namespace":"mesh","name":"cni-1",` + labels +
			`},"spec":{"nodeName":"node-1","volumes":[` + runDir + `]},"status":{"phase":"Running"}}]}`,
		"/api/v1/pods?status.phase=Pending": `{"items":[{"metadata":{"namespace":"shop",` +
			`"name":"web-0","uid":"u"},"spec":{"nodeName":"node-1"},"status":{"phase":"Pending",` +
			`"containerStatuses":[{"state":{"waiting":{"reason":"ContainerCreating"}}}]}}]}`,
		"/api/v1/events?source=sidecar-cni": `{"items":[]}`,
		"/api/v1/events?reason=FailedCreatePodSandBox": `{"items":[{"involvedObject":` +
			`{"kind":"Pod","uid":"u"},"message":"failed to setup network for sandbox \"s\": ` +
			`plugin type=\"sidecar-cni\" failed (add): no table nat; remedy: load nft_chain_nat"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if fields := r.URL.Query().Get("fieldSelector"); fields != "" {
			key += "?" + fields
		}
		if strings.HasSuffix(key, "/proxy/readyz") {
			http.Error(w, "not ready: no_backend: no backend works on this node",
				http.StatusServiceUnavailable)
			return
		}
		if strings.HasSuffix(key, "/proxy/metrics") {
			fmt.Fprintln(w, `sidecar_cni_chain_state{reason="no_backend",way=""} 1`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answers[key])
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",`+
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := run(t.Context(), "", "cluster", "--kubeconfig", file)
	flat := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"node-1 wrong agent: not ready: no_backend: no backend works on this node",
		"pod shop/web-0: waits in ContainerCreating: no table nat", "remedy: load nft_chain_nat",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("want %q in:\n%s%s", want, out, stderr)
		}
	}
	if code != exitAmiss {
		t.Errorf("exit code %d, want %d", code, exitAmiss)
	}
	server.Close()
	if _, stderr, code = run(t.Context(), "", "cluster", "--kubeconfig", file); code != exitError ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "read the cluster") {
		t.Errorf("without a server: %d, %s", code, stderr)
	}
}

func TestNonsenseAboutNodes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"node a b":                          "2 nodes: want one",
		"node --platform nonsense":          "want one of aks",
		"node --backend ebpf":               "want one of nftables",
		"cluster node-1":                    "takes no name",
		"cluster --agent-namespace a/b":     "want the name of a namespace",
		"cluster --agent-namespace=\x1b[3m": "want the name of a namespace",
		"cluster --agent-namespace":         "needs an argument",
	} {
		stdout, stderr, code := run(t.Context(), "", strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(stderr, want) || stdout != "" ||
			strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "\x1b") {
			t.Errorf("%s: %d, %q", line, code, stderr)
		}
	}
}
