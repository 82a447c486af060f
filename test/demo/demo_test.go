package main

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// TestDemo runs the demonstration as a user would and reads what it shows.
func TestDemo(t *testing.T) {
	netns.RequireRoot(t)
	program := filepath.Join(t.TempDir(), "demo")
	for _, cmd := range []*exec.Cmd{exec.Command("go", "build", "-o", program, "."), exec.Command(program)} {
		if strings.HasSuffix(cmd.Path, "/demo") {
			cmd.Dir = "../.."
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		if cmd.Path != program {
			continue
		}
		for _, want := range []string{
			"skipped pod: it has no annotation sidecar.istio.io/status",
			"redirected pod with nftables, asked the API server",
			"client ──▶ app :8080  ", "client ──▶ proxy :15006 ──▶ app :8080",
			"app ──▶ client :8080  ", "app ──▶ proxy :15001 ──▶ client :8080",
			"called by 127.0.0.6", "proxy  0x0000000000000000: no NET_ADMIN", ": 0 differences",
		} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the demonstration does not show %q:\n%s", want, out)
			}
		}
	}
}

// TestInterruptedDemoIsNoError ends the demonstration before it could begin.
func TestInterruptedDemoIsNoError(t *testing.T) {
	netns.RequireRoot(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx, io.Discard); err == nil {
		t.Error("run went on without a context")
	}
}
