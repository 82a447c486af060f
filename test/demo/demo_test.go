package main

import (
	"context"
	"os"
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
	for _, cmd := range []*exec.Cmd{exec.Command("go", "build", "-o", program, "."),
		exec.Command(program)} {
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
			"sidecarctl inject -f web.yaml", "    app          uid 1000, adds no capability\n",
			"    istio-proxy  uid 1337, adds no capability, a native sidecar\n",
			"  no istio-init: the plugin writes the rules",
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

// TestInterrupted ends the demonstration at its start, before it builds, and when there is a pod.
func TestInterrupted(t *testing.T) {
	netns.RequireRoot(t)
	for _, last := range []string{"", "Building", "Pod demo/client"} {
		t.Run("behind "+last, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			out := writer(func(text string) {
				if strings.Contains(text, last) {
					stop()
				}
			})
			out("")
			if err := run(ctx, out); err == nil {
				t.Error("run went on without a context")
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

type writer func(text string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
