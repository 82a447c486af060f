package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/contract/refusal"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
	"github.com/sidecar-cni/sidecar-cni/test/agent"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

const (
	statusKey = "sidecar.istio.io/status"
	uid       = "0f6f3c1e-2f6a-4d0e-9a53-3f6d9b1f7a11"
)

// For how long a call's report is waited for, and how many calls are made for one.
const (
	reportTimeout  = 200 * time.Millisecond
	reportAttempts = 20
)

// node is where the plugin is called: an agent that knows pods, and a directory for records.
type node struct {
	t     *testing.T
	agent *agent.Server
	state string
}

func newNode(t *testing.T) *node {
	return &node{t: t, agent: agent.Start(t), state: filepath.Join(t.TempDir(), "state")}
}

// meshed is a pod with a sidecar, as the API server has it.
func meshed(annotations map[string]string) *corev1.Pod {
	all := map[string]string{statusKey: "{}"}
	maps.Copy(all, annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: apitypes.UID(uid),
			Annotations: all},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}},
		}},
	}
}

// request is a call; what it leaves open is that of a meshed pod whose runtime tells nothing.
type request struct {
	command   string
	container string
	ifname    string
	netns     string
	args      string
	conf      map[string]any // over what the node wants
}

func ofPod(namespace, name string) string {
	return fmt.Sprintf("K8S_POD_INFRA_CONTAINER_ID=0a1b;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s;IgnoreUnknown=1", namespace, name, uid)
}

// told is a conf in which the runtime tells annotations.
func told(annotations map[string]string) map[string]any {
	return map[string]any{"runtimeConfig": map[string]any{
		netconf.AnnotationsCapability: annotations}}
}

// response is what came of a call.
type response struct {
	answer string
	err    *types.Error
	lines  []map[string]any // of the log
	stderr string
}

// last is the log's last line.
func (r response) last(t *testing.T) map[string]any {
	t.Helper()
	if len(r.lines) == 0 {
		t.Fatalf("no line in the log: %s", r.stderr)
	}
	return r.lines[len(r.lines)-1]
}

func (r response) want(t *testing.T, code uint, words ...string) {
	t.Helper()
	if code == 0 {
		if r.err != nil {
			t.Fatalf("refused with code %d: %s", r.err.Code, r.err.Msg)
		}
		return
	}
	if r.err == nil {
		t.Fatalf("went well, want code %d; log: %s", code, r.stderr)
	}
	if r.err.Code != code || r.answer != "" {
		t.Errorf("code %d, answer %q, want code %d and none: %s", r.err.Code, r.answer, code,
			r.err.Msg)
	}
	for _, w := range words {
		if !strings.Contains(r.err.Msg, w) {
			t.Errorf("the message lacks %q: %s", w, r.err.Msg)
		}
	}
	if n := strings.Count(r.err.Msg, "remedy: "); n != 1 {
		t.Errorf("%d remedies: %s", n, r.err.Msg)
	}
	if len(r.err.Msg) > refusal.Most {
		t.Errorf("a message of %d bytes: %s", len(r.err.Msg), r.err.Msg)
	}
}

func (n *node) call(r request) response {
	n.t.Helper()
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": "sidecar-cni", "deadline": "10s",
		"agentSocket": n.agent.Socket(), "kubeconfig": filepath.Join(n.state, "no-kubeconfig"),
		"stateDir": n.state,
	}
	maps.Copy(conf, r.conf)
	maps.DeleteFunc(conf, func(_ string, v any) bool { return v == nil })
	data, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	if r.args == "" {
		r.args = ofPod("shop", "web-0")
	}
	if r.ifname == "" {
		r.ifname = "eth0"
	}
	if r.container == "" {
		r.container = "0a1b"
	}
	verbs := map[string]verb{"ADD": add, "DEL": del, "CHECK": check, "GC": gc, "STATUS": status}
	return invoke(n.t, r.command, verbs[r.command], &skel.CmdArgs{
		ContainerID: r.container, Netns: r.netns, IfName: r.ifname, Args: r.args, StdinData: data,
	})
}

// callReported repeats a call until the agent has a report of it. The plugin sends one within 40 ms
// or not at all, and on a loaded machine some are lost. Be aware: it is for ADD and CHECK, which
// end the second time as they did the first time. A second DEL reports that there is no record.
func (n *node) callReported(r request) (response, agent.Outcome) {
	n.t.Helper()
	for range reportAttempts {
		got := n.call(r)
		select {
		case outcome := <-n.agent.Outcomes():
			return got, outcome
		case <-time.After(reportTimeout):
		}
	}
	n.t.Fatalf("the agent had no report of %d calls", reportAttempts)
	return response{}, agent.Outcome{}
}

func invoke(t *testing.T, command string, do verb, args *skel.CmdArgs) response {
	t.Helper()
	var stderr bytes.Buffer
	p := plugin{stderr: &stderr}
	err := p.verb(command, do)(args)
	r := response{answer: string(p.answer), stderr: stderr.String()}
	if err != nil && !errors.As(err, &r.err) {
		t.Fatalf("%T is no error of CNI: %v", err, err)
	}
	for line := range strings.Lines(r.stderr) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil {
			r.lines = append(r.lines, fields)
		}
	}
	return r
}

// problems are the differences between a namespace and what a pod asks for.
func problems(t *testing.T, ns *netns.NS, backendName string,
	p redirect.Policy) []redirect.Problem {
	t.Helper()
	tables, err := backend.Find(backendName)
	if err != nil {
		t.Fatal(err)
	}
	var found []redirect.Problem
	ns.Do(t, func() { found, err = tables.Verify(t.Context(), redirect.Compile(p)) })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (n *node) recorded(container string) record.Record {
	n.t.Helper()
	r, err := record.Dir(n.state).Read(record.Attachment{Container: container, Interface: "eth0"})
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// wantRedirected checks the kernel against the record.
func (n *node) wantRedirected(ns *netns.NS, backendName string) {
	n.t.Helper()
	r := n.recorded("0a1b")
	if r.Backend != backendName {
		n.t.Errorf("backend %q, want %q", r.Backend, backendName)
	}
	for _, p := range problems(n.t, ns, r.Backend, r.Policy) {
		n.t.Errorf("after ADD: %s", p)
	}
}

// wantUntouched checks that a namespace has no rules and no routes of ours.
func wantUntouched(t *testing.T, ns *netns.NS) {
	t.Helper()
	if rules := ns.Run(t, "", "nft", "list", "ruleset"); rules != "" {
		t.Errorf("rules were left:\n%s", rules)
	}
	if addrs := ns.Run(t, "", "ip", "-br", "address", "show", "dev", "lo"); strings.Contains(addrs,
		"::6") {
		t.Errorf("addresses were left: %s", addrs)
	}
}
