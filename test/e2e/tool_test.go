//go:build e2e

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// A toolRig is a cluster with pods about which sidecarctl is asked, by somebody who is on no node.
type toolRig struct {
	*rig
	pods map[string]*corev1.Pod // one on each node, by the node's name
}

// TestSidecarctl asks each command about real pods, through the API server and the nodes' agents.
func TestSidecarctl(t *testing.T) {
	r := &toolRig{rig: start(t, cluster.Options{Nodes: bothRuntimes}),
		pods: map[string]*corev1.Pod{}}
	// Nothing is mended, so that what a test breaks stays broken.
	r.install(t, "repair.mode=report", "tool.role=true", "guard.mode=off")
	r.namespace(t, "shop", "restricted")
	r.namespace(t, "open", "privileged")
	r.eachNode(func(n *cluster.Node) { r.create(t, on(n.Name, meshed("shop", "web-"+n.Name, ordinary))) })
	r.eachNode(func(n *cluster.Node) {
		r.pods[n.Name] = r.AwaitPod(t, "shop", "web-"+n.Name, cluster.Ready)
	})
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"a pod and its node", r.asks},
		{"connections", r.watches},
		{"rights that are missing", r.rights},
		{"the tool has no rights to be another user", r.notAsUser},
		{"the tool may be another user", r.asUser},
		{"annotations that were changed", r.changed},
		{"rules that are gone", r.gone},
		{"in place of istio-init", r.inits},
		{"a proxy is injected and taken out", r.injects},
		{"random pods are injected", r.accepted},
		{"repair is off", r.withoutRepair},
	} {
		t.Run(tt.name, tt.f)
	}
}

// run runs sidecarctl beside the control plane.
func (r *toolRig) run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	return r.runAs(t, r.Kubeconfig(), args...)
}

func (r *toolRig) runAs(t *testing.T, kubeconfig string, args ...string) (out string, code int) {
	t.Helper()
	out, err := r.Try("", program(t, "../../sidecarctl"), append(args, "--kubeconfig="+kubeconfig)...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if err != nil {
		out += err.Error()
	}
	return out, code
}

// expect runs it and looks for words in what it writes, whose lines may be broken anywhere.
func (r *toolRig) expect(t *testing.T, code int, words []string, args ...string) {
	t.Helper()
	out, got := r.run(t, args...)
	check(t, fmt.Sprint(args), out, got, code, words)
}

func check(t *testing.T, what, out string, got, code int, words []string) {
	t.Helper()
	if got != code {
		t.Errorf("%s: code %d, want %d", what, got, code)
	}
	flat := strings.Join(strings.Fields(out), " ")
	for _, want := range words {
		if !strings.Contains(flat, want) {
			t.Errorf("%s: no %q in\n%s", what, want, out)
			return
		}
	}
	if got != code {
		t.Log(out)
	}
}

// asks: what is known of a pod, from its node; and of the node, and of all.
func (r *toolRig) asks(t *testing.T) {
	r.eachNode(func(n *cluster.Node) {
		pod := "shop/" + r.pods[n.Name].Name
		out, code := r.run(t, "explain", pod)
		check(t, "explain", out, code, 0, []string{pod + ": redirected", "set by the pod"})
		if strings.Contains(out, "not all was learned") {
			t.Error(out)
		}
		r.expect(t, 0, []string{"No packet is treated differently"}, "compare", pod)
		r.expect(t, 0, []string{"redirect to :15001", "counter packets", "# handle"},
			"rules", pod, "--kernel")
		r.expect(t, 0, []string{pod + " redirected by nftables, all rules as recorded",
			":15001 uid 1337", ":15006 uid 1337"}, "verify", pod)
		r.expect(t, 0, []string{"nftables"}, "node", n.Name, "--run-dir=/run/sidecar-cni")
		r.expect(t, 0, []string{pod, "all rules as recorded"}, "verify", "--node="+n.Name)
	})
	r.expect(t, 0, []string{"2 of 2 pods redirected as they should be"}, "verify", "-A")
	r.expect(t, 0, []string{"2 nodes"}, "cluster")
	r.expect(t, 0, []string{"node0", "node1"}, "cluster", "--all")
	r.expect(t, 1, []string{`there is no Pod "none" in namespace "shop"`}, "explain", "shop/none")
}

// watches: a call of the app, as it happens.
func (r *toolRig) watches(t *testing.T) {
	from, to := r.pods["node0"], r.pods["node1"]
	ended := make(chan struct{})
	var out string
	var code int
	go func() {
		defer close(ended)
		out, code = r.run(t, "watch", "shop/"+from.Name, "--port", fmt.Sprint(appPort),
			"--count=1", "--for=1m")
	}()
	for calling := true; calling; {
		select {
		case <-ended:
			calling = false
		default:
			if _, err := tryLines[talk](r.rig, from, "call", "tcp", app(to.Status.PodIP)); err != nil {
				t.Fatal(err)
			}
		}
	}
	check(t, "watch", out, code, 0, []string{"TCP " + app(to.Status.PodIP)})
}

// rights: whoever may read pods, and no more, is told what he lacks; the chart's role has it.
func (r *toolRig) rights(t *testing.T) {
	r.Kubectl(t, "create", "serviceaccount", "dev", "--namespace=open")
	r.Kubectl(t, "create", "clusterrolebinding", "dev", "--clusterrole=view",
		"--serviceaccount=open:dev")
	kubeconfig := r.kubeconfigOf(t, "open", "dev")
	out, code := r.runAs(t, kubeconfig, "explain", "shop/web-node0")
	check(t, "explain", out, code, 0, []string{"not all was learned from its node",
		`verbs create and get for pods/exec in namespace "kube-system"`})
	out, code = r.runAs(t, kubeconfig, "verify", "shop/web-node0")
	check(t, "verify", out, code, 1, []string{"it is forbidden", "pods/exec"})
	r.Kubectl(t, "create", "clusterrolebinding", "tool", "--clusterrole=sidecar-cni-tool",
		"--serviceaccount=open:dev")
	r.Kubectl(t, "create", "rolebinding", "tool", "--namespace="+home, "--role=sidecar-cni-tool",
		"--serviceaccount=open:dev")
	out, code = r.runAs(t, kubeconfig, "verify", "shop/web-node0")
	check(t, "verify with the role", out, code, 0, []string{"all rules as recorded"})
	out, code = r.runAs(t, kubeconfig, "cluster")
	check(t, "cluster with the role", out, code, 0, []string{"2 nodes"})
}

// kubeconfigOf writes a kubeconfig with a token of a service account.
func (r *toolRig) kubeconfigOf(t *testing.T, namespace, account string) string {
	t.Helper()
	token := strings.TrimSpace(r.Kubectl(t, "create", "token", account, "--namespace="+namespace))
	var config map[string]any
	raw := r.Kubectl(t, "config", "view", "--raw", "--minify", "--flatten", "--output=json")
	if err := json.Unmarshal([]byte(raw), &config); err != nil {
		t.Fatal(err)
	}
	user := config["users"].([]any)[0].(map[string]any)
	user["user"] = map[string]any{"token": token}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// notAsUser: the agent may not be the app. What a peer sends has no user.
func (r *toolRig) notAsUser(t *testing.T) {
	r.expect(t, 1, []string{"SETUID", "tool.live"}, "trace", "shop/web-node0", "--from=app",
		"--to=198.51.100.7:80", "--live")
	r.expect(t, 0, []string{"──▶ proxy, port 15006", "The kernel took it through the same"},
		"trace", "shop/web-node0", "--from=peer", "--to=self:8080", "--live")
}

// asUser: with tool.live it may, and what it sends reaches nobody.
func (r *toolRig) asUser(t *testing.T) {
	r.helmRun(t, "upgrade", chart(t, "repair.mode=report", "tool.role=true", "guard.mode=off",
		"tool.live=true")...)
	r.awaitProduct(t)
	r.eachNode(func(n *cluster.Node) {
		pod := r.pods[n.Name]
		before, err := r.sightings(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		r.expect(t, 0, []string{"──▶ proxy, port 15001", "The kernel took it through the same"},
			"trace", "shop/"+pod.Name, "--from=app", "--to=198.51.100.7:80", "--live")
		r.expect(t, 0, []string{"──▶ eth0 ──▶ 198.51.100.7:80 The kernel took it through the same"},
			"trace", "shop/"+pod.Name, "--from=proxy", "--to=198.51.100.7:80", "--live")
		r.expect(t, 0, []string{"──▶ proxy, port 15006", "The kernel took it through the same"},
			"trace", "shop/"+pod.Name, "--from=peer", "--to=self:8080", "--live")
		if after, err := r.sightings(t.Context(), pod); err != nil || len(after) != len(before) {
			t.Errorf("the proxy has seen %d connections, and before %d: %v", len(after), len(before),
				err)
		}
		if tables := r.inPod(t, n, pod, "nft", "list", "tables"); strings.Count(tables, "table") != 1 {
			t.Errorf("tables are left:\n%s", tables)
		}
	})
}

// inPod runs a program of the node in the network of a pod.
func (r *toolRig) inPod(t *testing.T, n *cluster.Node, pod *corev1.Pod, args ...string) string {
	t.Helper()
	return inNetworkOf(t, n, pod, args...)
}

// changed: the rules are those of when the pod started.
func (r *toolRig) changed(t *testing.T) {
	r.Kubectl(t, "annotate", "--overwrite", "--namespace=shop", "pod", "web-node0",
		"traffic.sidecar.istio.io/excludeOutboundPorts=5432")
	r.expect(t, 0, []string{"what it asks for has changed since it started", "5432"}, "explain",
		"shop/web-node0")
	r.expect(t, 3, []string{"to port 5432"}, "compare", "shop/web-node0")
}

// gone: somebody has deleted the rules.
func (r *toolRig) gone(t *testing.T) {
	r.inPod(t, r.Node(1), r.pods["node1"], "nft", "delete", "table", "inet", "sidecar-cni")
	r.expect(t, 3, []string{"shop/web-node1", "no rule in its network namespace redirects"},
		"verify", "-A")
	r.expect(t, 0, []string{"there are no rules"}, "rules", "shop/web-node1", "--kernel")
}

// inits: the image stands in for istio-init's and istio-validation's, with their command lines.
func (r *toolRig) inits(t *testing.T) {
	image := "docker.io/sidecar-cni/sidecar-cni:" + version(t)
	r.eachNode(func(n *cluster.Node) {
		pod := on(n.Name, meshed("open", "init-"+n.Name, mesh{init: true}))
		first := &pod.Spec.InitContainers[0]
		first.Image, first.Command = image, []string{"/sidecarctl"}
		checked := mesh{}.validation()
		checked.Image, checked.Command = image, []string{"/sidecarctl"}
		pod.Spec.InitContainers = append([]corev1.Container{*first, checked},
			pod.Spec.InitContainers[1:]...)
		r.create(t, pod)
		pod = r.ready(t, pod)
		to := r.pods[n.Name]
		got := lines[talk](t, r.rig, pod, "call", "tcp", app(to.Status.PodIP))[0]
		r.expectSeen(t, pod, sighting{15001, got.Me, app(to.Status.PodIP)})
		// Without the rules the validation ends with 126, and the pod does not start.
		open := on(n.Name, meshed("open", "open-"+n.Name, mesh{init: true,
			annotations: map[string]string{"sidecar.istio.io/inject": "false"}}))
		open.Spec.InitContainers = []corev1.Container{checked}
		r.create(t, open)
		r.AwaitPod(t, "open", open.Name, func(p *corev1.Pod) error {
			for _, s := range p.Status.InitContainerStatuses {
				for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
					if state.Terminated != nil && state.Terminated.ExitCode == 126 {
						return nil
					}
				}
			}
			return errors.New("the validation has not failed")
		})
		out, code := r.run(t, "explain", "open/init-"+n.Name)
		check(t, "explain", out, code, 0, []string{"skipped"})
	})
}

// withoutRepair: the agent cannot look into pods, and says what it lacks.
func (r *toolRig) withoutRepair(t *testing.T) {
	r.helmRun(t, "upgrade", chart(t, "repair.mode=off", "guard.mode=off")...)
	r.awaitProduct(t)
	r.expect(t, 3, []string{"its network namespace was not found", "hostPID", "repair.mode"},
		"verify", "shop/web-node0")
}

// version is the product's.
func version(t *testing.T) string {
	t.Helper()
	chart, err := os.ReadFile("../../deployments/chart/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^appVersion: (.+)$`).FindStringSubmatch(string(chart))
	if found == nil {
		t.Fatal("Chart.yaml has no appVersion")
	}
	return found[1]
}
