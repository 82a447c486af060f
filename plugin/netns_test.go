package main

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// sandboxAt opens a namespace, even the host's: the tests below write nothing to it.
func sandboxAt(t *testing.T, path string) *sandbox {
	t.Helper()
	n, err := openSandbox(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return n
}

func TestWhoseNamespaceIsForeign(t *testing.T) {
	t.Parallel()
	if sandboxAt(t, netns.New(t).Path()).foreign() {
		t.Error("a namespace of our own user namespace is foreign")
	}
	if !sandboxAt(t, netns.NewInUserNamespace(t).Path()).foreign() {
		t.Error("a namespace of a user namespace within ours is not foreign")
	}
}

// within is set where a test runs once more, in a process with other namespaces.
const within = "SIDECAR_CNI_TEST_WITHIN"

// again runs a test once more by a program that makes namespaces. The test finds a namespace of its
// own at /proc/self/fd/3.
func again(t *testing.T, program ...string) {
	t.Helper()
	file, err := os.Open(netns.New(t).Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	args := slices.Concat(program, []string{os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v"})
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), within+"=yes"), []*os.File{file}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Below another user namespace the kernel does not tell who owns a namespace outside of it (EPERM).
func TestANamespaceWhoseOwnerCannotBeSeenIsForeign(t *testing.T) {
	t.Parallel()
	if os.Getenv(within) == "" {
		again(t, "unshare", "--user", "--map-root-user", "--net")
		return
	}
	if !sandboxAt(t, "/proc/self/fd/3").foreign() {
		t.Error("it is not foreign")
	}
}

// A plugin that a runtime starts in another namespace finds the host's at process 1.
func TestTheNamespaceOfProcess1IsNotOpened(t *testing.T) {
	t.Parallel()
	if os.Getenv(within) == "" {
		again(t, "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
			`nsenter --net=/proc/self/fd/3 "$@"; exit $?`, "sh")
		return
	}
	_, err := openSandbox(firstNetns)
	if err == nil || !strings.Contains(err.Error(), "process 1 runs in it") {
		t.Errorf("opened: %v", err)
	}
}

func TestTheHostsNamespaceIsNotOpened(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		ownNetns: "the plugin runs in it", "/nowhere": "no such file", "/etc/hosts": "/etc/hosts",
	} {
		n, err := openSandbox(path)
		if err == nil {
			n.close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", path, err, want)
		}
	}
	n := sandboxAt(t, netns.New(t).Path())
	if n.id.Device == 0 || n.id.Inode == 0 {
		t.Errorf("which one it is: %+v", n.id)
	}
}
