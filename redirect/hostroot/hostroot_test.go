package hostroot_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect/hostroot"
)

const whoami = `package main

import "os"

func main() {
	data, err := os.ReadFile("/etc/whoami")
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(data)
}
`

func TestInRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{"etc/whoami": "the host", "sbin/main.go": whoami} {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o",
		filepath.Join(root, "sbin/whoami"), filepath.Join(root, "sbin/main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	link := func(of string) string {
		to, err := os.Readlink(of)
		must(t, err)
		return to
	}
	before := link("/proc/self/root")
	for range 3 {
		var here string
		var out []byte
		err := hostroot.InRoot(root, func() error {
			here, _ = os.Getwd()
			cmd := exec.CommandContext(t.Context(), "/sbin/whoami")
			cmd.Stdin = strings.NewReader("") // there is no /dev/null
			var err error
			out, err = cmd.Output()
			return err
		})
		if string(out) != "the host" || here != "/" || err != nil {
			t.Errorf("%q in %q, %v", out, here, err)
		}
	}
	for range 500 { // some of them begin on the main thread
		must(t, hostroot.InRoot(root, func() error { return nil }))
	}
	if _, err := os.Stat("/sbin/whoami"); err == nil || before != link("/proc/self/root") {
		t.Errorf("others are in the other root too: %v", err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/root")
	must(t, err)
	for _, thread := range threads { // they end with their goroutines, which takes a moment
		for to, err := os.Readlink(thread); err == nil && to != before; {
			runtime.Gosched()
			to, err = os.Readlink(thread)
		}
	}
}

func TestInRootErrors(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops")
	if err := hostroot.InRoot(t.TempDir(), func() error { return oops }); !errors.Is(err, oops) {
		t.Errorf("the function's: %v", err)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	err := hostroot.InRoot(absent, func() error {
		t.Error("called without a root")
		return nil
	})
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), absent) {
		t.Errorf("no root: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
