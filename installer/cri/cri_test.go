package cri_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/test/criserver"
)

func TestAsk(t *testing.T) {
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
		want       cri.Runtime
		known, yes bool
	}{
		"containerd 1.6": {
			&criserver.Runtime{Name: "containerd", Version: "1.6.20~ds1", NetworkReady: true,
				Info: map[string]string{"config": config1, "cniconfig": "null",
					"lastCNILoadStatus": "OK"}},
			cri.Runtime{Name: "containerd", Version: "1.6.20~ds1", ConfDir: "/etc/cni/net.d",
				BinDirs: []string{"/opt/cni/bin"}, LastLoad: "OK", NetworkReady: true,
				Message: "because"},
			false, false,
		},
		"containerd 2": {
			&criserver.Runtime{Name: "containerd", Version: "v2.4.2",
				Info: map[string]string{"config": config2}},
			cri.Runtime{Name: "containerd", Version: "v2.4.2", ConfDir: "/etc/cni/net.d",
				BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, Message: "because"},
			false, false,
		},
		"what it has loaded": {
			&criserver.Runtime{Name: "containerd", Version: "v2.4.2",
				Info: map[string]string{"config": config2, "cniconfig": loaded}},
			cri.Runtime{Name: "containerd", Version: "v2.4.2", ConfDir: "/used/net.d",
				BinDirs: []string{"/used/bin"}, Chain: []byte(loaded), Message: "because"},
			true, true,
		},
		"CRI-O": {
			&criserver.Runtime{Name: "cri-o", Version: "1.34.0", NetworkReady: true,
				Info: map[string]string{"config": `{"sandboxImage":"registry.k8s.io/pause:3.10"}`}},
			cri.Runtime{Name: "cri-o", Version: "1.34.0", NetworkReady: true, Message: "because"},
			false, false,
		},
		"another one": {
			&criserver.Runtime{Name: "other", Version: "9",
				Info: map[string]string{"config": "text", "cniconfig": "text"}},
			cri.Runtime{Name: "other", Version: "9", Message: "because"},
			false, false,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cri.Ask(t.Context(), serve(t, row.from), "")
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
	if r, err := cri.Ask(t.Context(), socket, ""); err == nil ||
		!strings.Contains(err.Error(), socket) {
		t.Errorf("nobody there: %+v, %v", r, err)
	}
}

// TestRunsPod tells the runtime that runs a pod from others.
func TestRunsPod(t *testing.T) {
	t.Parallel()
	sandbox := func(uid string, state api.PodSandboxState) []*api.PodSandbox {
		return []*api.PodSandbox{{Metadata: &api.PodSandboxMetadata{Uid: "somebody"}},
			{Metadata: &api.PodSandboxMetadata{Uid: uid}, State: state}}
	}
	for name, row := range map[string]struct {
		pods []*api.PodSandbox
		want bool
	}{
		"it does":       {sandbox("me", api.PodSandboxState_SANDBOX_READY), true},
		"it did":        {sandbox("me", api.PodSandboxState_SANDBOX_NOTREADY), false},
		"others":        {sandbox("other", api.PodSandboxState_SANDBOX_READY), false},
		"no pod at all": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := cri.Ask(t.Context(),
				serve(t, &criserver.Runtime{Name: "containerd", Pods: row.pods}), "me")
			if err != nil || r.RunsPod != row.want {
				t.Errorf("runs it: %v, %v, want %v", r.RunsPod, err, row.want)
			}
		})
	}
	socket := filepath.Join(t.TempDir(), "s")
	criserver.ServeNothing(t, socket)
	if r, err := cri.Ask(t.Context(), socket, "me"); err == nil {
		t.Errorf("one that cannot tell: %+v", r)
	}
}

func TestManyNetworks(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]bool{
		`{"cni":{"maxConfNum":1}}`: false, `{"cni":{"maxConfNum":0}}`: true,
		`{"cni":{"maxConfNum":2}}`: true, `{"cni":{}}`: false, ``: false,
	} {
		r, err := cri.Ask(t.Context(),
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
		if got := cri.FromNode(version).LoadsDropIns(); got != want {
			t.Errorf("%s: %v, want %v", version, got, want)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "conf"), 0o755))
	must(t, os.Symlink("conf", filepath.Join(dir, "link")))
	r := cri.Runtime{Name: "containerd", ConfDir: filepath.Join(dir, "conf"),
		BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}}
	for _, row := range []struct {
		runtime   cri.Runtime
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
		{cri.Runtime{Name: "cri-o"}, "/x", "/y", ""},
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
