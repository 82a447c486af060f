package chain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// No line is lost when a node full of pods meets the limit of the log file: 40 plugins, held at a
// gate and let go together, find it one byte below.
func TestNoLineOfTheLogIsLostAtTheLimit(t *testing.T) {
	t.Parallel()
	const plugins, rounds, limit = 40, 20, 10 << 20
	n := newNode(t)
	for round := range rounds {
		dir := t.TempDir()
		file := filepath.Join(dir, "plugin.log")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, limit-1); err != nil { // a hole: nothing is written
			t.Fatal(err)
		}
		n.logTogether(plugins, file)
		content := tails(t, dir, limit-1)
		for i := range plugins {
			if count := strings.Count(content, fmt.Sprintf(`"container":"c%d"`, i)); count != 1 {
				t.Errorf("round %d: the line of plugin %d is there %d times", round, i, count)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// logTogether has each plugin write one line, for a pod whose namespace is not there.
func (n *Node) logTogether(plugins int, file string) {
	n.t.Helper()
	gate, err := os.Create(filepath.Join(n.t.TempDir(), "gate"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer gate.Close()
	if err := unix.Flock(int(gate.Fd()), unix.LOCK_EX); err != nil {
		n.t.Fatal(err)
	}
	pod, ns := Meshed("web-0", nil), netns.New(n.t)
	var started []*exec.Cmd
	for i := range plugins {
		at := Attachment(pod, ns)
		at.NetNS, at.ContainerID = "/nowhere", fmt.Sprintf("c%d", i)
		started = append(started, n.start(call{
			command: "ADD", at: at, conf: Object{"logFile": file},
			within: []string{"flock", "--shared", "--no-fork", gate.Name()},
		}))
	}
	if err := unix.Flock(int(gate.Fd()), unix.LOCK_UN); err != nil {
		n.t.Fatal(err)
	}
	for _, cmd := range started {
		_ = cmd.Wait() // each is refused
	}
}

// tails returns what stands behind the first bytes of the directory's larger files, and all of the
// others.
func tails(t *testing.T, dir string, first int) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var content strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > first {
			data = data[first:]
		}
		content.Write(data)
	}
	return content.String()
}
