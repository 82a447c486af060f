package iptables

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/await"
)

// programOf names, in the environment of this test's second process, the program that it runs.
const programOf = "IPTABLES_TEST_PROGRAM"

// Left behind by a caller that was killed, a program would write beside whoever tries again.
func TestAProgramEndsWithACallerThatIsKilled(t *testing.T) {
	t.Parallel()
	if program := os.Getenv(programOf); program != "" {
		_, err := run(t.Context(), "", program)
		t.Fatalf("the program ended by itself: %v", err)
	}
	dir := t.TempDir()
	program, pidFile := filepath.Join(dir, "program"), filepath.Join(dir, "pid")
	script := "#!/bin/sh\necho $$ >" + pidFile + "\nexec sleep 600\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	caller := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	caller.Env = append(os.Environ(), programOf+"="+program)
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	// cmdline is that of the program; it is empty once the program has ended.
	var cmdline func() []byte
	await.Until(t, "the program runs", func() bool {
		pid, _ := os.ReadFile(pidFile)
		cmdline = func() []byte {
			data, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline")
			return data
		}
		return len(pid) > 0 && bytes.Contains(cmdline(), []byte("sleep"))
	})
	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = caller.Wait() // it was killed
	await.Until(t, "the program has ended", func() bool { return len(cmdline()) == 0 })
}
