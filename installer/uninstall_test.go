package main_test

import (
	"net"
	"os"
	"os/exec"
	"testing"
)

// stay starts a program that takes the node out and stays.
func (r *rig) stay(more ...string) *daemon {
	r.t.Helper()
	return r.startBy(func(name string, args ...string) *exec.Cmd {
		return exec.Command(name, append(append([]string{"uninstall"}, args[1:]...), "--stay")...)
	}, more...)
}

// wantState compares what the metric says with a reason.
func (d *daemon) wantState(reason string) {
	d.t.Helper()
	const series = "sidecar_cni_chain_state"
	until(d.t, "the metric says "+reason, func() bool {
		return d.metric(series+`{reason="`+reason+`",way=""}`) == "1" &&
			d.metric(series+`{reason="effective",way=""}`) == "0"
	})
}

func TestUninstallThatStaysSaysThatTheNodeIsOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start()
	d.says(200, "ready:")
	d.stop()
	out := r.stay()
	out.says(200, "ready: the node is out")
	out.wantState("uninstalled")
	out.stop()
}

// The binary stays where a result of libcni's names it.
func TestUninstallThatStaysNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start()
	d.says(200, "ready:")
	d.stop()
	r.must(os.Mkdir(r.path("cache", "results"), 0o755))
	result := `{"kind":"cniCacheV1","config":"eyJwbHVnaW5zIjpbeyJ0eXBlIjoic2lkZWNhci1jbmkifV19"}`
	r.must(os.WriteFile(r.path("cache", "results", "pods-a-eth0"), []byte(result), 0o600))
	out := r.stay()
	out.says(200, "ready: the node is out; left: ", "name it")
	out.wantState("uninstalled")
}

func TestUninstallThatStaysSaysWhatKeepsTheNodeIn(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		prepare func(*rig) (flags []string)
		reason  string
	}{
		"a runtime that does not answer": {func(r *rig) []string {
			l, err := net.Listen("unix", r.path("mute.sock"))
			r.must(err)
			r.t.Cleanup(func() { l.Close() })
			return []string{"--runtime-socket", r.path("mute.sock")}
		}, "runtime"},
		"a conf directory that is a file": {func(r *rig) []string {
			r.must(os.WriteFile(r.path("file"), nil, 0o600))
			return []string{"--conf-dir", r.path("file")}
		}, "disk"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
			d := r.stay(row.prepare(r)...)
			d.says(503, "not ready: "+row.reason+": ")
			d.wantState(row.reason)
		})
	}
}
