package node_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// What libcni itself writes into its cache is what counts.
func TestCachedUsesOfLibcni(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin := "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\"}'\n"
	bin := lay(t, t.TempDir(), files{"bridge": plugin, "sidecar-cni": plugin}).Path
	for _, name := range []string{"bridge", "sidecar-cni"} {
		must(t, os.Chmod(filepath.Join(bin, name), 0o755))
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{bin}, dir, nil)
	count := func(want int) {
		t.Helper()
		if n, err := node.CachedUses(dir, "sidecar-cni"); n != want || err != nil {
			t.Errorf("%d uses, %v, want %d", n, err, want)
		}
	}
	count(0)
	attach := func(id, conf string) func() {
		list, err := libcni.NetworkConfFromBytes([]byte(conf))
		must(t, err)
		at := &libcni.RuntimeConf{ContainerID: id, NetNS: "/proc/self/ns/net", IfName: "eth0"}
		_, err = cni.AddNetworkList(t.Context(), list, at)
		must(t, err)
		return func() { must(t, cni.DelNetworkList(t.Context(), list, at)) }
	}
	ours := `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},{"type":"sidecar-cni"}]}`
	first, second := attach("a", ours), attach("b", ours)
	theirs := attach("c", `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","also":{"type":"sidecar-cni"}}]}`)
	count(2)
	first()
	count(1)
	second()
	count(0)
	theirs()
}

func TestCachedUses(t *testing.T) {
	t.Parallel()
	cached := func(conf string) string {
		return fmt.Sprintf(`{"kind":"cniCacheV1","config":%q,"result":{}}`,
			base64.StdEncoding.EncodeToString([]byte(conf)))
	}
	dir := t.TempDir()
	lay(t, filepath.Join(dir, "results"), files{
		"single":     cached(`{"type":"sidecar-cni"}`),
		"old":        `{"cniVersion":"0.3.1","ips":[]}`,
		"truncated":  cached(`{"type":"sidecar-cni"}`)[:40],
		"nonsense":   cached(`sidecar-cni`),
		"sub/folder": "x",
	})
	n, err := node.CachedUses(dir, "sidecar-cni")
	if n != 1 || err == nil || !strings.Contains(err.Error(), "truncated") ||
		!strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%d uses, %v", n, err)
	}
}
