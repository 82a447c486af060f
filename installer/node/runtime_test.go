package node_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// The real one: Debian's.
func TestContainerd(t *testing.T) {
	t.Parallel()
	c := startContainerd(t, "containerd")
	conf := node.Conf{Path: c.conf}
	ask := func() cri.Runtime {
		t.Helper()
		r, err := cri.Ask(t.Context(), c.socket, "")
		must(t, err)
		return r
	}
	r := ask()
	if r.Name != "containerd" || r.Version == "" || r.ConfDir != c.conf ||
		!slices.Equal(r.BinDirs, []string{c.bin}) {
		t.Errorf("%+v", r)
	}
	if r.NetworkReady || !strings.Contains(r.Message, "cni") ||
		!strings.Contains(r.LastLoad, "no network config found") {
		t.Errorf("without a network: ready %v, %q, last load %q", r.NetworkReady, r.Message,
			r.LastLoad)
	}
	wantRuns := func(r cri.Runtime, want bool) {
		t.Helper()
		if known, yes := r.Runs("sidecar-cni"); !known || yes != want {
			t.Errorf("runs us: %v, known: %v, want %v in %s", yes, known, want, r.Chain)
		}
	}
	if strange, err := cri.Ask(t.Context(), c.socket, "a-pod"); err != nil ||
		strange.RunsPod {
		t.Errorf("runs a pod: %v, %v", strange.RunsPod, err)
	}
	wantRuns(r, false)
	must(t, r.Refuses(c.conf+"/", c.bin))
	way := "inline"
	if r.LoadsDropIns() {
		way = "dropin"
	}
	lay(t, c.conf, files{"10-pods.conflist": listConf})
	await.Until(t, "the network is ready", func() bool { return ask().NetworkReady })
	wantRuns(ask(), false)
	for _, way := range []string{way, "out", "owned", "inline", "out"} {
		must(t, pass(conf, way))
		must(t, conf.Nudge())
		await.Until(t, "the runtime has loaded "+way, func() bool {
			_, yes := ask().Runs("sidecar-cni")
			return yes == (way != "out")
		})
		r := ask()
		if r.LastLoad != "OK" || !r.NetworkReady {
			t.Errorf("%s: last load %q, ready %v, %q", way, r.LastLoad, r.NetworkReady, r.Message)
		}
	}
}

// A file that is there with all its bytes at once is one that containerd does not see.
func TestNudge(t *testing.T) {
	t.Parallel()
	c := startContainerd(t, "containerd")
	elsewhere := lay(t, t.TempDir(), files{"conf": listConf})
	must(t, os.Link(filepath.Join(elsewhere.Path, "conf"),
		filepath.Join(c.conf, "10-pods.conflist")))
	was := tree(t, c.conf)
	must(t, node.Conf{Path: c.conf}.Nudge())
	await.Until(t, "the network is ready", func() bool {
		r, err := cri.Ask(t.Context(), c.socket, "")
		return err == nil && r.NetworkReady
	})
	if diff := cmp.Diff(was, tree(t, c.conf)); diff != "" {
		t.Errorf("directory (-before +after):\n%s", diff)
	}
}

// While passes follow each other, the runtime never meets a file that it cannot load, and has its
// network after each.
func TestContainerdKeepsItsNetwork(t *testing.T) {
	t.Parallel()
	c := startContainerd(t, "containerd")
	conf := lay(t, c.conf, files{"10-pods.conf": singleConf})
	ready := func() bool {
		r, err := cri.Ask(t.Context(), c.socket, "")
		if err != nil || r.LastLoad != "OK" && !strings.Contains(r.LastLoad, "no such file") {
			t.Errorf("last load %q, %v", r.LastLoad, err)
		}
		return r.NetworkReady
	}
	await.Until(t, "the runtime has loaded the network", func() bool {
		r, err := cri.Ask(t.Context(), c.socket, "")
		return err == nil && r.NetworkReady && r.LastLoad == "OK"
	})
	for range 5 {
		for _, way := range []string{"inline", "owned", "out"} {
			done := make(chan error, 1)
			go func() { done <- pass(conf, way) }()
			for running := true; running; {
				ready()
				select {
				case err := <-done:
					must(t, err)
					running = false
				default:
				}
			}
			await.Until(t, "the network is ready after "+way, ready)
		}
	}
}

type daemon struct{ conf, bin, socket string }

// startContainerd starts one with directories, mounts and a network of its own.
func startContainerd(t *testing.T, program string) daemon {
	t.Helper()
	dir := t.TempDir()
	d := daemon{conf: filepath.Join(dir, "net.d"), bin: filepath.Join(dir, "bin"),
		socket: filepath.Join(dir, "s")}
	lay(t, dir, files{"config.toml": `version = 2
root = "` + dir + `/root"
state = "` + dir + `/state"
[grpc]
address = "` + d.socket + `"
[ttrpc]
address = "` + dir + `/t"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "` + d.conf + `"
bin_dir = "` + d.bin + `"
`})
	must(t, os.MkdirAll(d.conf, 0o755))
	must(t, os.MkdirAll(d.bin, 0o755))
	cmd := exec.CommandContext(context.Background(), program, "-c",
		filepath.Join(dir, "config.toml"), "-l", "error")
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd: %s", log)
		}
	})
	await.Until(t, "containerd answers", func() bool {
		_, err := cri.Ask(t.Context(), d.socket, "")
		return err == nil
	})
	return d
}
