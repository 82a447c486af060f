package node_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		before  func(t *testing.T, path string)
		changed bool
	}{
		"nothing there": {func(*testing.T, string) {}, true},
		"the same there": {func(t *testing.T,
			path string) {
			must(t, os.WriteFile(path, []byte("new"), 0o600))
		}, false},
		"other contents": {func(t *testing.T,
			path string) {
			must(t, os.WriteFile(path, []byte("old"), 0o600))
		}, true},
		"other mode": {func(t *testing.T,
			path string) {
			must(t, os.WriteFile(path, []byte("new"), 0o644))
		}, true},
		"a link elsewhere": {func(t *testing.T,
			path string) {
			must(t, os.Symlink("elsewhere", path))
		}, true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			row.before(t, path)
			for _, want := range []bool{row.changed, false} {
				if changed, err := node.WriteFile(path, []byte("new"), 0o600); changed != want ||
					err != nil {
					t.Errorf("changed: %v, %v, want %v", changed, err, want)
				}
			}
			if diff := cmp.Diff(map[string]string{"file": "-rw-------\nnew"},
				tree(t, filepath.Dir(path))); diff != "" {
				t.Errorf("directory (-want +got):\n%s", diff)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "absent", "file")
	if _, err := node.WriteFile(path, nil, 0o600); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("no directory: %v", err)
	}
}

func TestInstallBinary(t *testing.T) {
	t.Parallel()
	program := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	source := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(source, program, 0o644))
	put := func(data []byte, mode fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, to string) {
			must(t, os.WriteFile(to, data, mode))
			must(t, os.Chmod(to, mode))
		}
	}
	flipped := func(at int) []byte {
		data := bytes.Clone(program)
		data[at] ^= 1
		return data
	}
	rows := map[string]struct {
		before  func(t *testing.T, to string)
		changed bool
	}{
		"nothing there":             {func(*testing.T, string) {}, true},
		"the same there":            {put(program, 0o755), false},
		"truncated":                 {put(program[:len(program)-1], 0o755), true},
		"longer":                    {put(append(bytes.Clone(program), 0), 0o755), true},
		"modified at the beginning": {put(flipped(0), 0o755), true},
		"modified in the middle":    {put(flipped(70_000), 0o755), true},
		"modified at the end":       {put(flipped(len(program)-1), 0o755), true},
		"not executable":            {put(program, 0o644), true},
		"writable to others":        {put(program, 0o777), true},
		"a link to it": {func(t *testing.T,
			to string) {
			must(t, os.Symlink(source, to))
		}, true},
		"remains of a killed one": {func(t *testing.T, to string) {
			put(program[:9], 0o600)(t, filepath.Join(filepath.Dir(to),
				".sidecar-cni.1.sidecar-cni-tmp"))
		}, true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "sidecar-cni")
			row.before(t, to)
			for _, want := range []bool{row.changed, false} {
				if changed, err := node.InstallBinary(source, to); changed != want || err != nil {
					t.Errorf("changed: %v, %v, want %v", changed, err, want)
				}
			}
			got := tree(t, filepath.Dir(to))
			if got["sidecar-cni"] != "-rwxr-xr-x\n"+string(program) || len(got) != 1 {
				t.Errorf("%d files, of sidecar-cni %d bytes", len(got), len(got["sidecar-cni"]))
			}
		})
	}
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, nil, 0o755))
	to := filepath.Join(t.TempDir(), "sidecar-cni")
	for _, from := range []string{empty, filepath.Dir(empty), empty + "-absent"} {
		if _, err := node.InstallBinary(from, to); err == nil ||
			!strings.Contains(err.Error(), from) {
			t.Errorf("from %s: %v", from, err)
		}
	}
	if got := tree(t, filepath.Dir(to)); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// Whoever starts the plugin while it is installed starts the old one or the new one.
func TestAProgramThatRunsIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	to := filepath.Join(dir, "sidecar-cni")
	_, err = node.InstallBinary(self, to)
	must(t, err)
	cmd := startChild(t, []string{to, "lock", filepath.Join(dir, "run")})
	other := filepath.Join(dir, "other")
	must(t, os.WriteFile(other, []byte("other"), 0o755))
	if changed, err := node.InstallBinary(other, to); !changed || err != nil {
		t.Errorf("changed: %v, %v", changed, err)
	}
	must(t, cmd.Process.Signal(os.Interrupt))
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sidecar-cni.d")
	c := node.Credentials{Dir: dir}
	steps := []struct {
		what, token, ca, server string
		before                  func()
		changed                 []string
	}{
		{"first", "one", "ca", "https://192.0.2.1:443", nil,
			[]string{"ca.crt", "token", "kubeconfig"}},
		{"again", "one", "ca", "https://192.0.2.1:443", nil, nil},
		{"token rotated", "two", "ca", "https://192.0.2.1:443", nil, []string{"token"}},
		{"authority rotated", "two", "ca2", "https://192.0.2.1:443", nil, []string{"ca.crt"}},
		{"server moved", "two", "ca2", "https://[2001:db8::1]:443", nil, []string{"kubeconfig"}},
		{"opened by somebody", "two", "ca2", "https://[2001:db8::1]:443", func() {
			must(t, os.Chmod(dir, 0o777))
			must(t, os.Chmod(filepath.Join(dir, "token"), 0o644))
		}, []string{"token"}},
	}
	for _, step := range steps {
		if step.before != nil {
			step.before()
		}
		changed, err := c.Write([]byte(step.token), []byte(step.ca), step.server)
		if diff := cmp.Diff(step.changed, changed); diff != "" || err != nil {
			t.Errorf("%s: changed: %v (-want +got):\n%s", step.what, err, diff)
		}
		got := tree(t, dir)
		if got["token"] != "-rw-------\n"+step.token || got["ca.crt"] != "-rw-------\n"+step.ca ||
			len(got) != 3 {
			t.Errorf("%s: %q", step.what, got)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s: %v, %v", step.what, info, err)
		}
		wantKubeconfig(t, filepath.Join(dir, "kubeconfig"), step.server)
	}
	must(t, os.WriteFile(filepath.Join(dir, ".token.1.sidecar-cni-tmp"), nil, 0o600))
	for range 2 {
		must(t, c.Remove())
	}
	if got := tree(t, filepath.Dir(dir)); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// What the plugin makes of the file is tested with the plugin; it is JSON, and kubectl's library
// reads it.
func wantKubeconfig(t *testing.T, path, server string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	if !json.Valid(data) || !strings.Contains(string(data), "Changes are overwritten.") {
		t.Errorf("kubeconfig: %s", data)
	}
	config, err := clientcmd.LoadFromFile(path)
	must(t, err)
	cluster, user := config.Clusters["local"], config.AuthInfos["sidecar-cni"]
	if config.CurrentContext != "sidecar-cni" ||
		config.Contexts["sidecar-cni"].Cluster != "local" ||
		config.Contexts["sidecar-cni"].AuthInfo != "sidecar-cni" || cluster == nil || user == nil {
		t.Fatalf("kubeconfig: %+v", config)
	}
	got := []string{cluster.Server, cluster.CertificateAuthority, user.TokenFile}
	if diff := cmp.Diff([]string{server, "ca.crt", "token"}, got); diff != "" {
		t.Errorf("kubeconfig (-want +got):\n%s", diff)
	}
}

func TestCredentialsAreNotReplacedByNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sidecar-cni.d")
	c := node.Credentials{Dir: dir}
	_, err := c.Write([]byte("token"), []byte("ca"), "https://192.0.2.1:443")
	must(t, err)
	was := tree(t, dir)
	for _, pair := range [][2]string{{"", "ca"}, {"\n", "ca"}, {"token", ""}} {
		if changed, err := c.Write([]byte(pair[0]), []byte(pair[1]),
			"https://192.0.2.1:443"); err == nil || changed != nil {
			t.Errorf("token %q, authority %q: %v, %v", pair[0], pair[1], changed, err)
		}
	}
	if diff := cmp.Diff(was, tree(t, dir)); diff != "" {
		t.Errorf("directory (-before +after):\n%s", diff)
	}
}

func TestCredentialsLeaveOtherFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sidecar-cni.d")
	c := node.Credentials{Dir: dir}
	_, err := c.Write([]byte("token"), []byte("ca"), "https://192.0.2.1:443")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "theirs"), nil, 0o600))
	must(t, c.Remove())
	if diff := cmp.Diff(map[string]string{"theirs": "-rw-------\n"}, tree(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "sidecar-cni.d")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := (node.Credentials{Dir: file}).Write([]byte("token"), []byte("ca"),
		"https://192.0.2.1:443"); err == nil ||
		!strings.Contains(err.Error(), file+": it is not a directory: remove it") {
		t.Errorf("a file in the directory's place: %v", err)
	}
}
