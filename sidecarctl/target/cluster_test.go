package target_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u, namespace: of-context}}
- {name: bare, context: {cluster: c, user: u}}
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {}}]
`

func configFor(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, kubeconfig, server), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func client(t *testing.T, server string) *rest.RESTClient {
	t.Helper()
	c, err := target.Connect(configFor(t, server), "")
	if err != nil || c.DefaultNamespace != "of-context" {
		t.Fatalf("namespace %q, error %v", c.DefaultNamespace, err)
	}
	return c.Client
}

// serve answers each request in the same way.
func serve(t *testing.T, code int, body string) *rest.RESTClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return client(t, server.URL)
}

// What a reference asks the API server for.
func TestReferences(t *testing.T) {
	t.Parallel()
	const core, apps, batch = "/api/v1/namespaces/", "/apis/apps/v1/namespaces/",
		"/apis/batch/v1/namespaces/"
	rows := []struct{ ref, flag, want string }{
		{"web-0", "", core + "of-context/pods/web-0"},
		{"web-0", "shop", core + "shop/pods/web-0"},
		{"shop/web-0", "", core + "shop/pods/web-0"},
		{"shop/web-0", "shop", core + "shop/pods/web-0"},
		{"pod/web-0", "shop", core + "shop/pods/web-0"},
		{"po/web-0", "", core + "of-context/pods/web-0"},
		{"deployment/web", "", apps + "of-context/deployments/web"},
		{"deploy/web", "shop", apps + "shop/deployments/web"},
		{"Deployment/web", "", apps + "of-context/deployments/web"},
		{"deployments.apps/web", "", apps + "of-context/deployments/web"},
		{"sts/web", "", apps + "of-context/statefulsets/web"},
		{"statefulset/web", "", apps + "of-context/statefulsets/web"},
		{"ds/web", "", apps + "of-context/daemonsets/web"},
		{"daemonset/web", "", apps + "of-context/daemonsets/web"},
		{"rs/web", "", apps + "of-context/replicasets/web"},
		{"replicaset/web", "", apps + "of-context/replicasets/web"},
		{"job/web", "", batch + "of-context/jobs/web"},
		{"cronjob/web", "", batch + "of-context/cronjobs/web"},
		{"cj/web", "", batch + "of-context/cronjobs/web"},
		{"rc/web", "", core + "of-context/replicationcontrollers/web"},
		{"job/web", "job", core + "job/pods/web"},
	}
	for _, row := range rows {
		asked := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
			asked <- r.Method + " " + r.URL.String()
		}))
		_, err := target.FromCluster(t.Context(), client(t, server.URL), row.ref,
			target.Options{Namespace: row.flag, DefaultNamespace: "of-context"})
		server.Close()
		select {
		case got := <-asked:
			if got != "GET "+row.want {
				t.Errorf("%s with %q: got %s, want GET %s", row.ref, row.flag, got, row.want)
			}
		default:
			t.Errorf("%s with %q: nothing asked: %v", row.ref, row.flag, err)
		}
	}
}

func TestReferencesThatAreRefused(t *testing.T) {
	t.Parallel()
	rows := []struct{ ref, flag, want string }{
		{"", "", `read "": no object is called ""`},
		{"a/b/c", "", "too many slashes; want NAMESPACE/POD, POD or TYPE/NAME"},
		{"shop/web", "other", `the command line says namespace "other", too; leave out one`},
		{"deployment.batch/web", "", `no namespace is called "deployment.batch"; want`},
		{"svc.core/web", "", "the type one of pod, deployment, "},
		{"../web", "", `no namespace is called ".."`},
		{"pod/..", "", `no object is called ".."`},
		{"a%2fb", "", `no object is called "a%2fb"`},
		{"a\n\x1b", "", `no object is called "a\n\x1b"`},
		{"web", "a b", `no namespace is called "a b"`},
	}
	for _, row := range rows {
		_, err := target.FromCluster(t.Context(), nil, row.ref,
			target.Options{Namespace: row.flag})
		if err == nil || !strings.Contains(err.Error(), row.want) || !printable(err.Error()) {
			t.Errorf("%q with %q: got %v, want %s", row.ref, row.flag, err, row.want)
		}
	}
}

func TestPodAndTemplateOfTheAPI(t *testing.T) {
	t.Parallel()
	pods, err := target.FromCluster(t.Context(), serve(t, http.StatusOK, `{"kind": "Pod",
		"metadata": {"name": "web-0", "namespace": "shop", "uid": "5b0c"},
		"spec": {"nodeName": "node-1", "containers": [{"name": "web"}]},
		"status": {"phase": "Running", "podIP": "10.0.0.7"}}`), "shop/web-0", target.Options{})
	if err != nil || len(pods) != 1 || pods[0].Name != "shop/web-0" || pods[0].UID != "5b0c" ||
		pods[0].Phase != "Running" || pods[0].Node != "node-1" || len(pods[0].IPs) != 1 {
		t.Errorf("pods %+v, error %v", pods, err)
	}
	pods, err = target.FromCluster(t.Context(), serve(t, http.StatusOK, `{"kind": "Deployment",
		"metadata": {"name": "web", "namespace": "shop", "uid": "5b0c"},
		"spec": {"template": {"spec": {"containers": [{"name": "web"}]}}}}`), "deploy/web",
		target.Options{Namespace: "shop"})
	if err != nil || len(pods) != 1 || pods[0].Name != "shop/web (Deployment)" ||
		pods[0].Facts.Name != "web" || pods[0].UID != "" || pods[0].Phase != "" {
		t.Errorf("pods %+v, error %v", pods, err)
	}
}

func status(code int, reason, message string) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d,
		"reason": %q, "message": %q}`, code, reason, message)
}

func TestAnswersWithoutAPod(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		code int
		body string
		want string
	}{
		{"no such pod", 404, status(404, "NotFound", `pods "web" not found`),
			`read pod shop/web: there is no Pod "web" in namespace "shop"; list them by kubectl ` +
				"get pods -n shop, or write TYPE/NAME"},
		{"forbidden", 403, status(403, "Forbidden", "pods \"web\" is forbidden:\n User \"jane\""),
			"read pod shop/web: it is forbidden; have a role bound to you with the verb get for " +
				`pods in namespace "shop": pods "web" is forbidden: User "jane"`},
		{"unauthorized", 401, status(401, "Unauthorized", "Unauthorized"),
			"does not accept the credentials; log in again"},
		{"broken server", 500, status(500, "InternalError", "etcd\x1b is away"),
			"did not answer with it; try again, or ask who runs it: "},
		{"a proxy's page", 502, "<html>bad gateway</html>", "did not answer with it; try again"},
		{"a login page", 200, "<html>", "the API server's answer: not valid JSON: "},
		{"a list", 200, "[]", "the API server's answer: it is a list, want a Pod"},
		{"something else", 200, `{"kind": "Service"}`, "there are 0 pods in it, want 1 in a Pod"},
		{"a pod of wrong types", 200, `{"spec": {"containers": {}}}`,
			"in spec.containers: found a mapping, want a list"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pods, err := target.FromCluster(t.Context(), serve(t, row.code, row.body), "shop/web",
				target.Options{})
			if err == nil || !strings.Contains(err.Error(), row.want) || !printable(err.Error()) {
				t.Errorf("pods %v, got  %v\nwant %s", pods, err, row.want)
			}
		})
	}
}

func TestForbiddenNamesTheGroup(t *testing.T) {
	t.Parallel()
	_, err := target.FromCluster(t.Context(), serve(t, 403, status(403, "Forbidden", "no")),
		"deploy/web", target.Options{Namespace: "shop"})
	const want = `the verb get for deployments.apps in namespace "shop"`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, err := target.FromCluster(t.Context(), client(t, gone.URL), "a", target.Options{})
	const want = "not reached; check the kubeconfig's context and the network"
	if err == nil || !strings.Contains(err.Error(), want) || !printable(err.Error()) ||
		strings.Count(err.Error(), "http") > 0 {
		t.Errorf("got %v, want %s", err, want)
	}

	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer slow.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = target.FromCluster(ctx, client(t, slow.URL), "a", target.Options{})
	if !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "did not answer in time; check the network") {
		t.Errorf("slow: got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = target.FromCluster(ctx, client(t, slow.URL), "a", target.Options{})
	if !errors.Is(err, context.Canceled) || !strings.HasSuffix(err.Error(), "interrupted") {
		t.Errorf("canceled: got %v", err)
	}
}

func TestKubeconfigs(t *testing.T) {
	t.Parallel()
	good := configFor(t, "https://127.0.0.1:1")
	if c, err := target.Connect(good, "bare"); c.DefaultNamespace != "default" || err != nil {
		t.Errorf("context without a namespace: namespace %q, error %v", c.DefaultNamespace, err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("a: b: c"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := []struct{ name, path, context, want string }{
		{"no such context", good, "a\x1b", `it has no context "a\x1b"; list them by kubectl`},
		{"no such file", wrong + "er", "", "no such file or directory; pass by --kubeconfig"},
		{"not YAML", wrong, "", "error loading config file"},
	}
	for _, row := range rows {
		_, err := target.Connect(row.path, row.context)
		if err == nil || !strings.HasPrefix(err.Error(), "read kubeconfig: ") ||
			!strings.Contains(err.Error(), row.want) || !printable(err.Error()) {
			t.Errorf("%s: got %v, want %s", row.name, err, row.want)
		}
	}
}

// No t.Parallel: the environment is the test's.
func TestNoKubeconfig(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	_, err := target.Connect("", "")
	if !errors.Is(err, target.ErrNoKubeconfig) ||
		!strings.HasSuffix(err.Error(), "set $KUBECONFIG, or pass the file by --kubeconfig") {
		t.Errorf("got %v", err)
	}
	t.Setenv("KUBECONFIG", configFor(t, "https://127.0.0.1:1"))
	if c, err := target.Connect("", ""); c.DefaultNamespace != "of-context" || err != nil {
		t.Errorf("$KUBECONFIG: namespace %q, error %v", c.DefaultNamespace, err)
	}
}
