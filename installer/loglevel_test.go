package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// The level of a running daemon is changed from within its pod, and holds until it ends.
func TestLogLevelWhileItRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start()
	d.says(200)
	level := func(want string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(r.built, "sidecar-cni-installer"),
			append([]string{"log-level", "--listen", d.listen}, args...)...)
		if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
			t.Errorf("log-level %q: %v, %s, want %q", args, err, out, want)
		}
	}
	level("info")
	level("want one of debug, info, warn, error", "loud")
	level("want one of debug, info, warn, error", "panic")
	level("debug", "debug")
	r.must(d.cmd.Process.Signal(syscall.SIGHUP))
	await.Until(t, "the daemon says more",
		func() bool { return strings.Contains(d.log.String(), `"level":"debug"`) })
	d.stop()
	level("connection refused")
}
