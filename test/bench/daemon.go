package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

// What the agent is measured with, and how long.
const (
	podsOnNode    = 250
	podsInCluster = 10_000
	quietTime     = 10 * time.Second
	startTimeout  = time.Minute
)

// daemon is what the installer's process takes on a full node of a large cluster.
type daemon struct {
	anonymous, resident, most int64 // bytes
	cpu                       time.Duration
}

// measureDaemon starts an installer beside an API server that knows a large cluster.
func measureDaemon(t testing.TB) daemon {
	t.Helper()
	dir := t.TempDir()
	api := apiserver.Start(t)
	api.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}})
	for i := range podsInCluster {
		pod := meshed(t, i)
		pod.UID = types.UID(fmt.Sprint(i))
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i/podsOnNode)
		api.Put(pod)
	}
	for _, name := range []string{"conf", "bin", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const network = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}`
	if err := os.WriteFile(filepath.Join(dir, "conf", "10-pods.conflist"), []byte(network),
		0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	p := build(t)
	cmd := exec.CommandContext(t.Context(), p.installer, "run", "--node-name", "node-0",
		"--kubeconfig", api.Kubeconfig(),
		"--token-file", api.TokenFile(), "--ca-file", api.CAFile(), "--api-server",
		"https://127.0.0.1:6443",
		"--conf-dir", filepath.Join(dir, "conf"), "--bin-dir", filepath.Join(dir, "bin"),
		"--run-dir", filepath.Join(dir, "run"),
		// This node's pods do not run.
		"--runtime-socket", filepath.Join(dir, "none"), "--plugin-binary", p.plugin, "--listen",
		listen, "--repair", "off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	awaitReady(t, "http://"+listen)
	before := ticks(t, cmd.Process.Pid)
	rest(t.Context(), quietTime)
	d := memoryOf(t, cmd.Process.Pid)
	d.cpu = ticks(t, cmd.Process.Pid) - before
	return d
}

func awaitReady(t testing.TB, address string) {
	t.Helper()
	said := ""
	for end := time.Now().Add(startTimeout); time.Now().Before(end) &&
		t.Context().Err() == nil; rest(t.Context(), 50*time.Millisecond) {
		resp, err := http.Get(address + "/readyz")
		if err != nil {
			said = err.Error()
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if said = string(body); resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("the installer is not ready: %s", said)
}

func rest(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}

// memoryOf reads what the kernel counts.
func memoryOf(t testing.TB, pid int) daemon {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var d daemon
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		var kib int64
		if _, err := fmt.Sscan(value, &kib); err != nil {
			continue
		}
		switch key {
		case "RssAnon":
			d.anonymous = kib << 10
		case "VmRSS":
			d.resident = kib << 10
		case "VmHWM":
			d.most = kib << 10
		}
	}
	return d
}

// ticks is the CPU time of a process, in hundredths of a second.
func ticks(t testing.TB, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
