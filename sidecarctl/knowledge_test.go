package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/onnode"
)

// An apiServer answers for a cluster with one node, whose agent runs this program. The other
// half of exec is the one that container runtimes have.
type apiServer struct {
	objects map[string]string // by their paths
	dirs    onnode.Dirs       // of the node
	exec    error             // instead of running anything, behind what it says
	says    string            // is written instead, again and again if it is endless
	endless bool
	ended   chan error       // of each command in the agent
	refused int              // the status of an exec that is refused; 0 is none
	away    string           // a server that requests for an exec are redirected to; "" is none
	args    []string         // of the last command in the agent
	pods    http.HandlerFunc // answers for those of the namespace shop that are not in objects
}

const agentList = `{"kind": "PodList", "items": [
{"metadata": {"namespace": "mesh", "name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"},
 "spec": {"nodeName": "node-1", "volumes": [{"hostPath": {"path": "/run/sidecar-cni"}}]},
 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
{"metadata": {"namespace": "mesh", "name": "agent-1", "creationTimestamp": "2026-01-02T00:00:00Z"},
 "spec": {"nodeName": "node-1", "volumes": [{"hostPath": {"path": "/run/sidecar-cni"}}]},
 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
{"metadata": {"namespace": "mesh", "name": "starting", "creationTimestamp": "2026-01-03T00:00:00Z"},
 "spec": {"nodeName": "node-1", "volumes": [{"hostPath": {"path": "/run/sidecar-cni"}}]}, "status": {"phase": "Running"}},
{"metadata": {"namespace": "mesh", "name": "pending", "creationTimestamp": "2026-01-04T00:00:00Z"},
 "spec": {"nodeName": "node-1", "volumes": [{"hostPath": {"path": "/run/sidecar-cni"}}]}, "status": {"phase": "Pending"}}]}`

func (c *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,`+
			`"reason":%q,"message":"pods \"agent-1\" is forbidden: User \"dev\" cannot create "}`, code, reason)
	}
	if r.URL.Path == "/api/v1/namespaces/mesh/pods/agent-1/exec" {
		if c.away != "" {
			http.Redirect(w, r, c.away, http.StatusFound)
			return
		}
		if c.refused != 0 {
			refuse(c.refused, http.StatusText(c.refused))
			return
		}
		c.args = r.URL.Query()["command"]
		remotecommand.ServeExec(w, r, c, "agent-1", "", r.URL.Query().Get("container"), c.args,
			&remotecommand.Options{Stdin: r.URL.Query().Has("stdin"), Stdout: true, Stderr: true},
			time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
		return
	}
	body, ok := c.objects[r.URL.Path]
	if r.URL.Query().Get("labelSelector") == onnode.Labels {
		if body, ok = c.objects["agents"]; !ok {
			body, ok = agentList, true
		}
		if node := r.URL.Query().Get("fieldSelector"); node != "" && node != "spec.nodeName=node-1" {
			body = `{}`
		}
	}
	if !ok && c.pods != nil && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods/") {
		c.pods(w, r)
		return
	}
	if !ok {
		refuse(http.StatusNotFound, "NotFound")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}

// ExecInContainer runs this program as the agent's image has it.
func (c *apiServer) ExecInContainer(ctx context.Context, _, _, container string, cmd []string,
	in io.Reader, out, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
	_ time.Duration) error {
	for c.says != "" {
		if _, err := io.WriteString(out, c.says); err != nil {
			return err
		}
		if !c.endless {
			return c.exec
		}
	}
	if c.exec != nil {
		return c.exec
	}
	if cmd[0] != "/sidecarctl" || container != "agent" {
		return fmt.Errorf("%q in %q is not the tool", cmd[0], container)
	}
	e := env{args: cmd[1:], stdin: in, stdout: out, stderr: stderr, dirs: c.dirs, root: true}
	var err error
	// Of a connection that is gone the program knows by its standard input alone.
	if code := e.run(context.WithoutCancel(ctx)); code != 0 {
		err = exec.CodeExitError{Err: fmt.Errorf("exit %d", code), Code: code}
	}
	c.ended <- err
	return err
}

// nodeDirs makes the directories of a node: the agent's, and a chain with our entry.
func nodeDirs(t *testing.T, entry string, records ...record.Record) onnode.Dirs {
	t.Helper()
	d := onnode.Dirs{Run: t.TempDir(), Conf: t.TempDir()}
	if entry != "" {
		write(t, filepath.Join(d.Conf, "10-net.conflist"),
			`{"name": "net", "plugins": [{"type": "bridge"}, `+entry+`]}`)
	}
	for _, r := range records {
		if err := record.Dir(filepath.Join(d.Run, "state")).Write(r); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask runs the program against the cluster, as somebody does who is no root on any node.
func (c *apiServer) ask(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	e := env{args: append(args, "--kubeconfig", c.serve(t)), stdout: &out, stderr: &errs}
	code = e.run(t.Context())
	return out.String(), errs.String(), code
}

// serve has the API server answer, and returns the path of a kubeconfig.
func (c *apiServer) serve(t *testing.T) string {
	t.Helper()
	c.ended = make(chan error, 100)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "`+server.URL+`"}}],
		"users": [{"name": "a", "user": {"token": "secret"}}]}`)
	return kubeconfig
}

const webPath = "/api/v1/namespaces/shop/pods/web-0"

// web is a pod of a StatefulSet.
func web(annotations string) string {
	return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web-0",
	"uid": "5b0c", "annotations": {"sidecar.istio.io/status": "{}"` + annotations + `},
	"ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web",
		"controller": true}]},
	"spec": {"nodeName": "node-1", "containers": [
		{"name": "app", "securityContext": {"runAsUser": 1000}},
		{"name": "istio-proxy", "args": ["proxy", "sidecar"],
		 "env": [{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"}],
		 "securityContext": {"runAsUser": 1337}}]},
	"status": {"phase": "Running", "podIPs": [{"ip": "10.244.0.7"}]}}`
}

// started is the record of the pod as it was when it started, without annotations.
func started(t *testing.T) record.Record {
	t.Helper()
	decision, err := redirect.Decide(redirect.Pod{Namespace: "shop", Name: "web-0",
		Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		Nameservers: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Spec: &redirect.Spec{Containers: []redirect.Container{{Name: "app"},
			{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}}}}},
		redirect.Defaults())
	if err != nil || decision.Skip != "" {
		t.Fatal(decision.Skip, err)
	}
	return record.Record{
		Attachment: record.Attachment{Container: "c0ffee", Interface: record.MainInterface},
		Pod:        record.Pod{Namespace: "shop", Name: "web-0", UID: "5b0c"},
		Backend:    redirect.Backends[0], Policy: decision.Policy,
		Revision: record.Revision(redirect.Compile(decision.Policy)),
	}
}

// What only a node knows is learned from its agent, and where that cannot be the answer says so.
func TestWhatANodeKnows(t *testing.T) {
	t.Parallel()
	const (
		plain   = `{"type": "sidecar-cni"}`
		setting = `{"type": "sidecar-cni", "redirect": {"values": ` +
			`{"traffic.sidecar.istio.io/excludeOutboundPorts": "3306"}}}`
		changed  = `, "traffic.sidecar.istio.io/excludeInboundPorts": "9"`
		unknown  = "the pod's nameservers are not known here"
		learned  = "not all was learned from its node"
		template = "/apis/apps/v1/namespaces/shop/statefulsets/web"
	)
	rows := map[string]struct {
		cluster    func(*apiServer)
		pod, entry string
		args       []string
		want, not  []string
	}{
		"changed since it started": {pod: changed, entry: plain,
			want: []string{"what it asks for has changed since it started, its rules have not: " +
				"TCP", "port 9", "remedy: delete the pod"}, not: []string{unknown, learned}},
		"as it started": {entry: plain,
			not: []string{unknown, learned, "has changed"}},
		"what the cluster sets": {entry: setting,
			want: []string{"set by the cluster", "excludeOutboundPorts 3306"}},
		"an entry that nobody can read": {entry: `{"type": "sidecar-cni", "backend": 7}`,
			want: []string{learned + ": read ", "backend"}},
		"a drop-in": {cluster: func(c *apiServer) {
			dir := filepath.Join(c.dirs.Conf, "net")
			if err := os.Mkdir(dir, 0o700); err != nil {
				panic(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "99-sidecar-cni.conf"), []byte(setting),
				0o600); err != nil {
				panic(err)
			}
		}, want: []string{"excludeOutboundPorts 3306"}, not: []string{learned}},
		"the handler of its runtime class": {entry: plain, cluster: func(c *apiServer) {
			c.objects[webPath] = strings.Replace(c.objects[webPath], `"nodeName"`,
				`"runtimeClassName": "vm", "nodeName"`, 1)
			c.objects["/apis/node.k8s.io/v1/runtimeclasses/vm"] = `{"handler": "runc"}`
		}, not: []string{"is not known here"}},
		"a static pod is known to its node by another uid": {entry: plain,
			cluster: func(c *apiServer) {
				c.objects[webPath] = strings.Replace(strings.Replace(web(changed), "5b0c", "a1b2", 1),
					`"sidecar.istio.io/status"`,
					`"kubernetes.io/config.mirror": "5b0c", "sidecar.istio.io/status"`, 1)
			}, want: []string{"it was redirected when it started"}},
		"no entry": {want: []string{learned + ": no file of ", "is it installed on this node?"}},
		"annotated outside of the template": {entry: plain, cluster: func(c *apiServer) {
			c.objects[template] = `{"metadata": {"annotations": {` +
				`"traffic.sidecar.istio.io/excludeOutboundPorts": "80"}}}`
		}, want: []string{`excludeOutboundPorts: "80" is an annotation of the StatefulSet web ` +
			`itself, which no pod gets`, "spec.template.metadata.annotations"}},
		"no agent": {entry: plain, cluster: func(c *apiServer) { c.objects["agents"] = `{}` },
			want: []string{learned + ": no agent of sidecar-cni runs on node node-1", unknown}},
		"exec is forbidden": {entry: plain, cluster: func(c *apiServer) { c.refused = 403 },
			want: []string{`verbs create and get for pods/exec in namespace "mesh"`, unknown}},
		"an agent without the tool": {entry: plain, cluster: func(c *apiServer) {
			c.exec = errors.New(`exec: "/sidecarctl": stat /sidecarctl: no such file or directory`)
		}, want: []string{"agent mesh/agent-1 of node node-1", "of an older version: update it"}},
		"an agent that knows no such command": {entry: plain, cluster: func(c *apiServer) {
			c.exec = exec.CodeExitError{Err: errors.New("exit"), Code: 2}
		}, want: []string{"agent mesh/agent-1 of node node-1: it failed, and did not say why"}},
		"somebody has --entry": {entry: setting, args: []string{"--entry", "testdata/entry.json"},
			want: []string{unknown}, not: []string{"3306"},
			cluster: func(c *apiServer) { c.exec = errors.New("asked all the same") }},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &apiServer{objects: map[string]string{webPath: web(row.pod)},
				dirs: nodeDirs(t, row.entry, started(t))}
			if row.cluster != nil {
				row.cluster(c)
			}
			out, stderr, code := c.ask(t, append([]string{"explain", "shop/web-0"}, row.args...)...)
			if code != 0 {
				t.Fatal(code, stderr)
			}
			for _, want := range row.want {
				if !strings.Contains(flat(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, not := range row.not {
				if strings.Contains(flat(out), not) {
					t.Errorf("%q in\n%s", not, out)
				}
			}
		})
	}
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }
