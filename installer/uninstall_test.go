package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/criserver"
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
	await.Until(d.t, "the metric says "+reason, func() bool {
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

// loaded is a containerd that reads a directory, and runs the plugin there or not.
func loaded(dir, plugin string) *criserver.Runtime {
	return &criserver.Runtime{Name: "containerd", Version: "2.1.0", Info: map[string]string{
		"cniconfig": fmt.Sprintf(
			`{"PluginConfDir":%q,"Networks":[{"Config":{"Plugins":[{"Network":{"type":%q}}]}}]}`,
			dir, plugin),
	}}
}

// A node is taken out whatever listens at the socket: worthless credentials in a chain that still
// has the plugin would have every pod of the mesh refused.
func TestUninstallBesideAnyRuntime(t *testing.T) {
	t.Parallel()
	listen := func(r *rig) net.Listener {
		l, err := (&net.ListenConfig{}).Listen(r.t.Context(), "unix", r.path("strange.sock"))
		r.must(err)
		r.t.Cleanup(func() { l.Close() })
		return l
	}
	rows := map[string]struct {
		prepare func(*rig)
		binary  bool // stays
	}{
		"one that does not answer": {func(r *rig) { listen(r) }, true},
		"one that speaks something else": {func(r *rig) {
			l := listen(r)
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
					_ = conn.Close()
				}
			}()
		}, true},
		"one that is dead": {func(r *rig) {
			l := listen(r)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			r.must(l.Close())
		}, true},
		"one that reads another directory": {func(r *rig) {
			criserver.Serve(r.t, r.path("strange.sock"), loaded("/elsewhere", "bridge"))
		}, false},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
			before := r.tree("conf")
			d := r.start("--way", "inline")
			d.says(200)
			row.prepare(r)
			if out, err := r.run("uninstall", "--runtime-socket",
				r.path("strange.sock")); err != nil {
				t.Fatalf("uninstall: %v\n%s", err, out)
			}
			d.says(503, "uninstalled")
			if diff := cmp.Diff(before, r.tree("conf")); diff != "" {
				t.Errorf("conf directory (-original +left):\n%s", diff)
			}
			if got := r.chain(); !slices.Equal(got, []string{"bridge"}) {
				t.Errorf("chain %q", got)
			}
			if _, err := os.Stat(r.path("bin", "sidecar-cni")); (err == nil) != row.binary {
				t.Errorf("the binary: %v", err)
			}
		})
	}
}

// A runtime that says that it still runs the plugin needs what the plugin needs.
func TestUninstallWaitsForARuntimeThatHasNotReloaded(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"10-bridge.conflist": bridge})
	d := r.start("--way", "inline")
	d.says(200)
	criserver.Serve(t, r.path("slow.sock"), loaded(r.path("conf"), "sidecar-cni"))
	out, err := r.run("uninstall", "--runtime-socket", r.path("slow.sock"))
	if err == nil || !strings.Contains(out, "containerd still has the plugin in its chain") {
		t.Errorf("uninstall: %v\n%s", err, out)
	}
	if got := r.chain(); !slices.Equal(got, []string{"bridge"}) {
		t.Errorf("chain %q", got)
	}
	if _, err := os.Stat(r.path("conf", "sidecar-cni.d", "kubeconfig")); err != nil {
		t.Errorf("credentials: %v", err)
	}
	if _, err := os.Stat(r.path("bin", "sidecar-cni")); err != nil {
		t.Errorf("binary: %v", err)
	}
}
