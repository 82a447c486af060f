//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// TestWords compares what the README shows with what there is to be seen.
func TestWords(t *testing.T) {
	r := start(t, cluster.Options{Families: cluster.IPv4, Nodes: oneNode})
	r.install(t)
	r.namespace(t, "shop", "restricted")
	good := meshed("shop", "good", ordinary)
	bad := meshed("shop", "bad",
		mesh{annotations: map[string]string{
			"traffic.sidecar.istio.io/excludeOutboundPorts": "65536"}})
	r.create(t, on("node0", good))
	r.create(t, on("node0", bad))
	r.expectRedirected(t, r.ready(t, good))

	t.Run("rules tell their reasons", func(t *testing.T) {
		listing := r.inNetwork(t, r.ready(t, good), "nft", "--stateless", "list", "table", "inet",
			"sidecar-cni")
		for _, line := range quoted(t, "comment \"") {
			if !strings.Contains(listing, line) {
				t.Errorf("the README shows %q, and the kernel has\n%s", line, listing)
			}
		}
	})
	t.Run("kubectl describe pod", func(t *testing.T) {
		lines := quoted(t, "excludeOutboundPorts: \"65536\"")
		r.awaitEvent(t, bad, "FailedCreatePodSandBox",
			append(lines, `plugin type="sidecar-cni" failed (add)`,
				"remedy: correct the pod's annotations or variables and create it anew")...)
		r.awaitEvent(t, bad, "SidecarRedirectFailed", lines...)
		said := r.Kubectl(t, "--namespace=shop", "describe", "pod", "bad")
		for _, line := range append(lines, "SidecarRedirectFailed", "FailedCreatePodSandBox") {
			if !strings.Contains(said, line) {
				t.Errorf("no %q in\n%s", line, said)
			}
		}
	})
	t.Run("kubectl logs", func(t *testing.T) {
		said := r.Kubectl(t, "--namespace="+home, "logs", "daemonset/"+release)
		for _, want := range []string{`"msg":"started agent"`, `"msg":"changed node"`,
			`"msg":"evaluated node","outcome":"effective"`} {
			if !strings.Contains(said, want) {
				t.Errorf("no %s in\n%s", want, said)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) {
		n := r.Node(0)
		for _, series := range [][]string{
			{"sidecar_cni_chain_state", `reason="effective"`, `way="dropin"`},
			{"sidecar_cni_commands_total", `command="ADD"`, `outcome="redirected"`},
			{"sidecar_cni_commands_total", `command="ADD"`, `outcome="failed"`,
				`reason="bad_annotations"`},
			{"sidecar_cni_command_phase_duration_seconds_count", `command="ADD"`, `phase="apply"`},
			{"sidecar_cni_events_total", `result="created"`},
			{"sidecar_cni_cached_pods"},
			{"sidecar_cni_token_expiry_timestamp_seconds"},
		} {
			r.awaitMetric(t, n, positive, series[0], series[1:]...)
		}
	})
	t.Run("readiness", func(t *testing.T) {
		r.Await(t, "the agent to be ready", func(ctx context.Context) error {
			said, err := r.readyz(ctx, r.Node(0))
			if err == nil && said != "ready: 10-cluster.conflist runs our entry from "+
				"cluster/99-sidecar-cni.conf\n" {
				err = fmt.Errorf("it says %q", said)
			}
			return err
		})
	})
}

// quoted returns the lines of the README's examples that contain a text.
func quoted(t *testing.T, text string) []string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, inside := []string{}, false
	for line := range strings.Lines(string(readme)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case inside && strings.Contains(line, text):
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		t.Fatalf("the README shows no %s", text)
	}
	return lines
}
