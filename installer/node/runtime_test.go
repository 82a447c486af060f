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
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/test/criserver"
)

// The real one: Debian's.
func TestContainerd(t *testing.T) {
	t.Parallel()
	c := startContainerd(t, "containerd")
	conf := node.Conf{Path: c.conf}
	ask := func() node.Runtime {
		t.Helper()
		r, err := node.AskRuntime(t.Context(), c.socket, "")
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
	wantRuns := func(r node.Runtime, want bool) {
		t.Helper()
		if known, yes := r.Runs("sidecar-cni"); !known || yes != want {
			t.Errorf("runs us: %v, known: %v, want %v in %s", yes, known, want, r.Chain)
		}
	}
	if strange, err := node.AskRuntime(t.Context(), c.socket, "a-pod"); err != nil ||
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
	soon(t, "the network is ready", func() bool { return ask().NetworkReady })
	wantRuns(ask(), false)
	for _, way := range []string{way, "out", "owned", "inline", "out"} {
		must(t, pass(conf, way))
		must(t, conf.Nudge())
		soon(t, "the runtime has loaded "+way, func() bool {
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
	soon(t, "the network is ready", func() bool {
		r, err := node.AskRuntime(t.Context(), c.socket, "")
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
		r, err := node.AskRuntime(t.Context(), c.socket, "")
		if err != nil || r.LastLoad != "OK" && !strings.Contains(r.LastLoad, "no such file") {
			t.Errorf("last load %q, %v", r.LastLoad, err)
		}
		return r.NetworkReady
	}
	soon(t, "the runtime has loaded the network", func() bool {
		r, err := node.AskRuntime(t.Context(), c.socket, "")
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
			soon(t, "the network is ready after "+way, ready)
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
	soon(t, "containerd answers", func() bool {
		_, err := node.AskRuntime(t.Context(), d.socket, "")
		return err == nil
	})
	return d
}

func TestAskRuntime(t *testing.T) {
	t.Parallel()
	const (
		config1 = `{"cni":{"binDir":"/opt/cni/bin","confDir":"/etc/cni/net.d","maxConfNum":1},"containerd":{}}`
		config2 = `{"cni":{"binDir":"","binDirs":["/opt/cni/bin","/usr/lib/cni"],"confDir":"/etc/cni/net.d"}}`
		loaded  = `{"PluginDirs":["/used/bin"],"PluginConfDir":"/used/net.d","PluginMaxConfNum":1,"Prefix":"eth","Networks":[
			{"Config":{"Name":"cni-loopback","CNIVersion":"0.3.1","Plugins":[{"Network":{"type":"loopback","ipam":{}},"Source":"{}"}],"Source":"{}"},"IFName":"lo"},
			{"Config":{"Name":"pods","CNIVersion":"1.0.0","Plugins":[{"Network":{"type":"bridge"},"Source":"{}"},{"Network":{"type":"sidecar-cni"},"Source":"{}"}],"Source":"{}"},"IFName":"eth0"}]}`
	)
	rows := map[string]struct {
		from       *criserver.Runtime
		want       node.Runtime
		known, yes bool
	}{
		"containerd 1.6": {
			&criserver.Runtime{Name: "containerd", Version: "1.6.20~ds1", NetworkReady: true,
				Info: map[string]string{"config": config1, "cniconfig": "null",
					"lastCNILoadStatus": "OK"}},
			node.Runtime{Name: "containerd", Version: "1.6.20~ds1", ConfDir: "/etc/cni/net.d",
				BinDirs: []string{"/opt/cni/bin"}, LastLoad: "OK", NetworkReady: true,
				Message: "because"},
			false, false,
		},
		"containerd 2": {
			&criserver.Runtime{Name: "containerd", Version: "v2.4.2",
				Info: map[string]string{"config": config2}},
			node.Runtime{Name: "containerd", Version: "v2.4.2", ConfDir: "/etc/cni/net.d",
				BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, Message: "because"},
			false, false,
		},
		"what it has loaded": {
			&criserver.Runtime{Name: "containerd", Version: "v2.4.2",
				Info: map[string]string{"config": config2, "cniconfig": loaded}},
			node.Runtime{Name: "containerd", Version: "v2.4.2", ConfDir: "/used/net.d",
				BinDirs: []string{"/used/bin"}, Chain: []byte(loaded), Message: "because"},
			true, true,
		},
		"CRI-O": {
			&criserver.Runtime{Name: "cri-o", Version: "1.34.0", NetworkReady: true,
				Info: map[string]string{"config": `{"sandboxImage":"registry.k8s.io/pause:3.10"}`}},
			node.Runtime{Name: "cri-o", Version: "1.34.0", NetworkReady: true, Message: "because"},
			false, false,
		},
		"another one": {
			&criserver.Runtime{Name: "other", Version: "9",
				Info: map[string]string{"config": "text", "cniconfig": "text"}},
			node.Runtime{Name: "other", Version: "9", Message: "because"},
			false, false,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := node.AskRuntime(t.Context(), serve(t, row.from), "")
			must(t, err)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("runtime (-want +got):\n%s", diff)
			}
			if known, yes := got.Runs("sidecar-cni"); known != row.known || yes != row.yes {
				t.Errorf("known %v, runs %v", known, yes)
			}
			if known, yes := got.Runs("istio-cni"); known != row.known || yes {
				t.Errorf("istio-cni: known %v, runs %v", known, yes)
			}
		})
	}
	socket := filepath.Join(t.TempDir(), "s")
	if r, err := node.AskRuntime(t.Context(), socket, ""); err == nil ||
		!strings.Contains(err.Error(), socket) {
		t.Errorf("nobody there: %+v, %v", r, err)
	}
}

// TestRunsPod tells the runtime that runs a pod from others.
func TestRunsPod(t *testing.T) {
	t.Parallel()
	sandbox := func(uid string, state cri.PodSandboxState) []*cri.PodSandbox {
		return []*cri.PodSandbox{{Metadata: &cri.PodSandboxMetadata{Uid: "somebody"}},
			{Metadata: &cri.PodSandboxMetadata{Uid: uid}, State: state}}
	}
	for name, row := range map[string]struct {
		pods []*cri.PodSandbox
		want bool
	}{
		"it does":       {sandbox("me", cri.PodSandboxState_SANDBOX_READY), true},
		"it did":        {sandbox("me", cri.PodSandboxState_SANDBOX_NOTREADY), false},
		"others":        {sandbox("other", cri.PodSandboxState_SANDBOX_READY), false},
		"no pod at all": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := node.AskRuntime(t.Context(),
				serve(t, &criserver.Runtime{Name: "containerd", Pods: row.pods}), "me")
			if err != nil || r.RunsPod != row.want {
				t.Errorf("runs it: %v, %v, want %v", r.RunsPod, err, row.want)
			}
		})
	}
	socket := filepath.Join(t.TempDir(), "s")
	criserver.ServeNothing(t, socket)
	if r, err := node.AskRuntime(t.Context(), socket, "me"); err == nil {
		t.Errorf("one that cannot tell: %+v", r)
	}
}

func TestManyNetworks(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]bool{
		`{"cni":{"maxConfNum":1}}`: false, `{"cni":{"maxConfNum":0}}`: true,
		`{"cni":{"maxConfNum":2}}`: true, `{"cni":{}}`: false, ``: false,
	} {
		r, err := node.AskRuntime(t.Context(),
			serve(t, &criserver.Runtime{Info: map[string]string{"config": config}}), "")
		if err != nil || r.ManyNetworks != want {
			t.Errorf("%s: %v, %v, want %v", config, r.ManyNetworks, err, want)
		}
	}
}

func serve(t *testing.T, r *criserver.Runtime) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	criserver.Serve(t, socket, r)
	return socket
}

func TestLoadsDropIns(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"containerd://1.6.20":         false,
		"containerd://1.7.27-k3s1":    false,
		"containerd://2.0.5":          false,
		"containerd://2.1.0":          true,
		"containerd://2.1.0-rc.1":     true,
		"containerd://v2.1-rc.1":      true,
		"containerd://2.4.2+unknown":  true,
		"containerd://2.10.0":         true,
		"containerd://3.0.0":          true,
		"containerd://":               false,
		"containerd://2":              false,
		"containerd://2.":             false,
		"containerd://2.x":            false,
		"containerd://x.1":            false,
		"cri-o://1.30.9":              false,
		"cri-o://1.32.9":              false,
		"cri-o://1.33.0":              true,
		"cri-o://1.34.0":              true,
		"cri-o://1.35.0-dev":          true,
		"docker://28.1.0":             false,
		"":                            false,
		"containerd://Unknown-2.1":    false,
		"containerd://2.1.5-k3s1.33":  true,
		"containerd://1.6.20~ds1+b12": false,
	} {
		if got := node.RuntimeFromNode(version).LoadsDropIns(); got != want {
			t.Errorf("%s: %v, want %v", version, got, want)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "conf"), 0o755))
	must(t, os.Symlink("conf", filepath.Join(dir, "link")))
	r := node.Runtime{Name: "containerd", ConfDir: filepath.Join(dir, "conf"),
		BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}}
	for _, row := range []struct {
		runtime   node.Runtime
		conf, bin string
		want      string
	}{
		{r, dir + "/conf", "/opt/cni/bin", ""},
		{r, dir + "//conf/", "/usr/lib/cni/", ""},
		{r, dir + "/link", "/opt/cni/bin", ""},
		{r, "/etc/cni/net.d", "/opt/cni/bin",
			"use conf directory /etc/cni/net.d: containerd reads " + dir +
				"/conf: configure that one"},
		{r, dir + "/conf", "/opt/bin", "use plugin directory /opt/bin: containerd looks for " +
			"plugins in /opt/cni/bin, /usr/lib/cni: configure that one"},
		{node.Runtime{Name: "cri-o"}, "/x", "/y", ""},
	} {
		err := row.runtime.Refuses(row.conf, row.bin)
		if got := text(err); got != row.want {
			t.Errorf("%s, %s: %q, want %q", row.conf, row.bin, got, row.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
