package onnode_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// Who waits for an agent in vain is told for which.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			<-over
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"items": [{"metadata": {"namespace": "mesh", "name": "agent-1"},
			"spec": {"nodeName": "node-1", "volumes": [{"hostPath": {"path": "/run/sidecar-cni"}}]},
			"status": {"phase": "Running"}}]}`)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "`+server.URL+`"}}],
		"users": [{"name": "a", "user": {}}]}`)
	cluster, err := target.Connect(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := onnode.Agents{Client: cluster.Client, Config: cluster.Config}.On(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = onnode.Ask[onnode.Facts](t.Context(), agent, onnode.Call{
		Args: []string{onnode.FactsVerb}, Timeout: 50 * time.Millisecond})
	const want = "agent mesh/agent-1 of node node-1 has not answered for 50ms"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Where no entry is found all directories are named in which one was looked for.
func TestNoEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "installation"), `{"confDir": "`+dir+`/cni", "multusConfDir": "`+dir+`/multus"}`)
	facts := onnode.Read(onnode.Dirs{Run: dir}, nil)
	want := "no file of " + dir + "/multus, " + dir + "/cni, /etc/cni/net.d has an entry of sidecar-cni"
	if len(facts.Unread) != 1 || !strings.Contains(facts.Unread[0], want) {
		t.Errorf("%q, want %s", facts.Unread, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
