package main_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/cgroup"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/nriserver"
)

const guardConnected = "sidecar_cni_guard_connected"

// guarding are the flags of a daemon that may enter namespaces.
var guarding = []string{"--repair", "repair", "--repair-interval", "1h"}

func guarded(when, outcome string) string {
	return fmt.Sprintf("sidecar_cni_guard_sandboxes_total{outcome=%q,when=%q}", outcome, when)
}

// sandboxOf is that of a pod that the API server knows.
func (r *rig) sandboxOf(pod *corev1.Pod, ns *netns.NS) nriserver.Pod {
	r.api.Put(pod)
	return nriserver.Pod{ID: "0a1b" + pod.Name, Name: pod.Name, Namespace: pod.Namespace,
		UID: string(pod.UID), Annotations: pod.Annotations, NetnsPath: ns.Path()}
}

func isRedirected(t *testing.T, ns *netns.NS) bool {
	t.Helper()
	return strings.Contains(ns.Run(t, "", "nft", "list", "ruleset"), "table inet sidecar-cni")
}

// What nobody has redirected, the daemon does, as long as the node takes part.
func TestTheDaemonGuardsSandboxes(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	r := newRig(t, map[string]string{"10-pods.conflist": bridge})
	runtime := nriserver.Start(t, nriserver.Options{Socket: r.path("nri.sock")})
	d := r.start(guarding...)
	await.Until(t, "the guard is connected", func() bool { return d.metric(guardConnected) == "1" })
	first, second := netns.New(t), netns.New(t)
	if _, err := runtime.RunPodSandbox(r.sandboxOf(meshed("web-0"), first)); err != nil {
		t.Error(err)
	}
	if !isRedirected(t, first) {
		t.Error("a sandbox passed that nobody has redirected")
	}
	if _, err := os.Stat(r.path("run", "state", "0a1bweb-0:eth0.json")); err != nil {
		t.Error(err)
	}
	if out, err := r.run("uninstall"); err != nil {
		t.Fatal(err, out)
	}
	d.says(503, "uninstalled")
	if _, err := runtime.RunPodSandbox(r.sandboxOf(meshed("web-1"), second)); err != nil {
		t.Error(err)
	}
	if isRedirected(t, second) {
		t.Error("a sandbox was redirected on a node that was taken out")
	}
	if got := d.metric(guarded("start", "passed")); got != "1" {
		t.Errorf("%s sandboxes passed", got)
	}
}

// Of two agents the one decides that is in charge.
func TestASupersededDaemonLetsSandboxesPass(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	r := newRig(t, map[string]string{"10-pods.conflist": bridge})
	runtime := nriserver.Start(t, nriserver.Options{Socket: r.path("nri.sock")})
	older := r.start(guarding...)
	older.says(200, "ready")
	newer := r.start(guarding...)
	newer.says(200, "ready")
	older.says(200, "a newer agent on this node is in charge")
	runtime.AwaitPlugins("90-sidecar-cni", "90-sidecar-cni")
	runtime.AwaitSynchronized(2)
	if _, err := runtime.RunPodSandbox(r.sandboxOf(meshed("web-0"), netns.New(t))); err != nil {
		t.Error(err)
	}
	if o, n := older.metric(guarded("start", "passed")),
		newer.metric(guarded("start", "redirected")); o != "1" || n != "1" {
		t.Errorf("the older one let %s pass, the newer redirected %s; want 1 and 1", o, n)
	}
}

func TestWhereNothingIsGuarded(t *testing.T) {
	t.Parallel()
	for title, flags := range map[string][]string{
		"no namespace is entered": {"--repair", "off"},
		"it is off":               {"--repair", "repair", "--guard", "off"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]string{"10-pods.conflist": bridge})
			runtime := nriserver.Start(t, nriserver.Options{Socket: r.path("nri.sock")})
			d := r.start(flags...)
			d.says(200, "ready")
			runtime.AwaitPlugins()
			if got := d.metric(guardConnected); got != "" {
				t.Errorf("connected: %s", got)
			}
		})
	}
	r := newRig(t, map[string]string{"10-pods.conflist": bridge})
	if out, err := r.run("run", "--guard", "refuse"); err == nil ||
		!strings.Contains(out, "--guard=refuse: with --repair=off") {
		t.Errorf("error %v: %s", err, out)
	}
}

// A full node is told with all of its containers, which may be large, and forgotten again.
func TestAFullNodeIsTold(t *testing.T) {
	netns.RequireRoot(t)
	r := newRig(t, map[string]string{"10-pods.conflist": bridge})
	runtime := nriserver.Start(t, nriserver.Options{Socket: r.path("nri.sock")})
	ns := netns.New(t)
	var pods []nriserver.Pod
	var containers []nriserver.Container
	for i := range fullNode {
		pod := meshed(fmt.Sprint("web-", i))
		pod.UID = types.UID(fmt.Sprint(i))
		pods = append(pods, r.sandboxOf(pod, ns))
		for j := range 3 {
			containers = append(containers, nriserver.Container{ID: fmt.Sprint(i, "-", j),
				PodID: pods[i].ID, Name: "app", State: nriserver.Running,
				Env: []string{"A=" + strings.Repeat("x", 10<<10)}})
		}
	}
	runtime.SetPods(pods, containers)
	group := cgroup.New(t, chartLimit(t))
	d := r.startBy(group.Command, guarding...)
	defer d.kill() // before the cgroup goes
	await.Until(t, "the guard is connected", func() bool { return d.metric(guardConnected) == "1" })
	if got := d.metric(guarded("connect", "open")); got != strconv.Itoa(fullNode) {
		t.Errorf("%s sandboxes are open, want %d", got, fullNode)
	}
	if kills := group.Kills(t); kills > 0 {
		t.Errorf("the kernel ended %d processes", kills)
	}
	t.Logf("at most %d MiB", group.Most(t)>>20)
}
