package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// What the agent is measured with, and how long.
const (
	podsOnNode    = 250
	podsInCluster = 10_000
	quietTime     = 10 * time.Second
	startTimeout  = time.Minute
)

// daemon is what the agent's process takes on a full node of a large cluster.
type daemon struct {
	anonymous, resident, most int64 // bytes
	cpu                       time.Duration
}

// measureDaemon starts an agent beside an API server that knows a large cluster.
func measureDaemon(t testing.TB) daemon {
	t.Helper()
	host := netns.New(t)
	host.RaiseLoopback(t)
	api := apiserver.StartIn(t, host)
	for i := range podsInCluster {
		pod := meshed(t, i)
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i/podsOnNode)
		api.Put(pod)
	}
	_, pid := startAgent(t, host, api, build(t))
	before := ticks(t, pid)
	rest(t.Context(), quietTime)
	d := memoryOf(t, pid)
	d.cpu = ticks(t, pid) - before
	return d
}

// startAgent starts the agent of node-0, whose pods do not run, and waits until it vouches for the
// files of the pods that the API server knows. It returns the agent's run directory and process.
func startAgent(t testing.TB, host *netns.NS, api *apiserver.Server,
	p programs) (run string, pid int) {
	t.Helper()
	api.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}})
	dir := tmpfs(t)
	conf, run := filepath.Join(dir, "conf"), filepath.Join(dir, "run")
	const network = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}`
	err := errors.Join(os.Mkdir(conf, 0o700), os.Mkdir(run, 0o700),
		os.WriteFile(filepath.Join(conf, "10-pods.conflist"), []byte(network), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), p.installer, "run", "--node-name", "node-0",
		"--kubeconfig", api.Kubeconfig(), "--token-file", api.TokenFile(),
		"--ca-file", api.CAFile(), "--api-server", "https://127.0.0.1:6443",
		"--conf-dir", conf, "--bin-dir", filepath.Join(dir, "bin"), "--run-dir", run,
		"--runtime-socket", filepath.Join(dir, "none"), "--plugin-binary", p.plugin,
		"--listen", "127.0.0.1:0", "--repair", "off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stderr = &log
	host.Do(t, func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	fresh := filepath.Join(podfile.Dir(run), podfile.FreshFile)
	for end := time.Now().Add(startTimeout); ; rest(t.Context(), 50*time.Millisecond) {
		if _, err := os.Stat(fresh); err == nil {
			return run, cmd.Process.Pid
		} else if t.Context().Err() != nil || time.Now().After(end) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("the agent does not vouch for its files: %v\n%s", err, &log)
		}
	}
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
