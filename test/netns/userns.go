package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// userNamespaceRoot is the uid and the gid, outside, of root in a user namespace made here.
const userNamespaceRoot = 100000

// NewInUserNamespace makes an empty network namespace that belongs to another user namespace, as
// that of a pod with hostUsers: false does. Identities in it are written as the pod's processes see
// them.
func NewInUserNamespace(t testing.TB) *NS {
	t.Helper()
	RequireRoot(t)
	// A Go process cannot enter a user namespace, so another process makes both. It ends with its
	// standard input, which is also what happens when this process is killed.
	cmd := exec.Command("unshare", "--user", "--net", "cat")
	cmd.Stderr = os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatalf("make user namespace: %v", err)
	}
	defer func() {
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			t.Errorf("leave user namespace: %v", err)
		}
	}()
	// An echo means that unshare has become cat, within the namespaces.
	if _, err := stdin.Write([]byte{'.'}); err != nil {
		t.Fatalf("make user namespace: %v", err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatalf("make user namespace: wait for unshare: %v", err)
	}
	proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	for _, file := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(proc+file, fmt.Appendf(nil, "0 %d 65536", userNamespaceRoot),
			0); err != nil {
			t.Fatalf("map users: %v", err)
		}
	}
	n := &NS{idOffset: userNamespaceRoot}
	n.keep(t, proc+"ns/net")
	return n
}
