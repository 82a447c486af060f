package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	conf := lay(t, filepath.Join(t.TempDir(), "net.d"),
		files{"10-pods.conflist": "list", "pods/10-x.conf": "drop-in", "calico-kubeconfig": "x"})
	dir := t.TempDir()
	program, token := filepath.Join(dir, "program"), filepath.Join(dir, "projected")
	must(t, os.WriteFile(program, make([]byte, 5<<20), 0o755))
	project(t, token, "one")
	at := func(name string) string { return filepath.Join(conf.Path, name) }
	write := func(path, data string) { must(t, os.WriteFile(path, []byte(data), 0o640)) }
	steps := []struct {
		what    string
		do      func()
		matters bool
	}{
		{"nothing", func() {}, false},
		{"the same written", func() { write(at("10-pods.conflist"), "list") }, false},
		{"the same replaced", func() {
			_, err := node.WriteFile(at("10-pods.conflist"), []byte("list"), 0o640)
			must(t, err)
		}, false},
		{"a temporary file", func() { write(at(".x.1.sidecar-cni-tmp"), "") }, false},
		{"credentials", func() {
			_, err := node.Credentials{Dir: at("sidecar-cni.d")}.Write([]byte("t"), []byte("ca"),
				"https://192.0.2.1")
			must(t, err)
		}, false},
		{"a nudge", func() { must(t, conf.Nudge()) }, false},
		{"what nobody loads", func() { write(at("calico-kubeconfig"), "y") }, false},
		{"a conf", func() { write(at("10-pods.conflist"), "lisT") }, true},
		{"its mode", func() { must(t, os.Chmod(at("10-pods.conflist"), 0o600)) }, true},
		{"a drop-in", func() { write(at("pods/10-x.conf"), "Drop-in") }, true},
		{"a new name", func() { write(at("new"), "") }, true},
		{"a token", func() { project(t, token, "two") }, true},
		{"the token's mode", func() { must(t, os.Chmod(filepath.Join(token, "token"), 0o640)) },
			true},
		{"and back", func() { must(t, os.Chmod(filepath.Join(token, "token"), 0o600)) }, true},
		{"the same token again", func() { project(t, token, "two") }, false},
		{"a truncated program", func() { must(t, os.Truncate(program, 5<<20-1)) }, true},
		{"a changed one", func() {
			f, err := os.OpenFile(program, os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("x"), 1<<20)
			must(t, err)
			must(t, f.Close())
		}, true},
		{"no program", func() { must(t, os.Remove(program)) }, true},
	}
	take := func() string {
		t.Helper()
		taken, err := node.Fingerprint(conf, program, filepath.Join(token, "token"))
		must(t, err)
		return taken
	}
	was := take()
	for _, step := range steps {
		step.do()
		now := take()
		if (now != was) != step.matters {
			t.Errorf("%s: another fingerprint: %v", step.what, now != was)
		}
		was = now
	}
	must(t, os.RemoveAll(conf.Path))
	if _, err := node.Fingerprint(conf); err == nil {
		t.Error("a fingerprint of nothing")
	}
}
