// Package cgroup holds a program to a limit of memory, as a container's cgroup does.
//
//	g := cgroup.New(t, 150<<20)
//	cmd := g.Command("sidecar-cni-installer", "run")
//
// Be aware: it takes root, and the memory controller of either version. What is beside it under
// /sys/fs/cgroup is left alone.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/await"
)

const root = "/sys/fs/cgroup"

// A Memory is a cgroup with a limit of memory.
type Memory struct {
	dir  string
	seen string // where programs see it as their own
	v2   bool
}

var made atomic.Int32

// New makes a cgroup whose programs together have limit bytes, until the test ends. By then they
// must have ended, too.
func New(t testing.TB, limit int64) *Memory {
	t.Helper()
	m := &Memory{seen: filepath.Join(root, "memory")}
	settings := map[string]string{"memory.limit_in_bytes": strconv.FormatInt(limit, 10)}
	if _, err := os.Stat(filepath.Join(m.seen, "memory.limit_in_bytes")); err != nil {
		m = &Memory{seen: root, v2: true}
		settings = map[string]string{"memory.max": strconv.FormatInt(limit, 10),
			"memory.swap.max": "0"}
		delegate := filepath.Join(root, "cgroup.subtree_control")
		if err := os.WriteFile(delegate, []byte("+memory"), 0); err != nil {
			t.Fatalf("find the memory controller: %v", err)
		}
	}
	m.dir = filepath.Join(m.seen, fmt.Sprintf("sidecar-cni-test-%d-%d", os.Getpid(), made.Add(1)))
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.remove(t) })
	for file, value := range settings {
		err := os.WriteFile(filepath.Join(m.dir, file), []byte(value), 0)
		noSwap := file == "memory.swap.max" && errors.Is(err, os.ErrNotExist)
		if err != nil && !noSwap {
			t.Fatal(err)
		}
	}
	return m
}

// remove tries for a while: a process that has ended leaves its cgroup a moment later.
func (m *Memory) remove(t testing.TB) {
	t.Helper()
	var err error
	if !await.Within(time.Minute, func() bool { err = unix.Rmdir(m.dir); return err == nil }) {
		t.Errorf("remove cgroup %s: %v", m.dir, err)
	}
}

// Command is a program that runs in the cgroup and sees it where a container sees its own.
func (m *Memory) Command(name string, args ...string) *exec.Cmd {
	const script = `echo $$ >"$1/cgroup.procs" && mount --bind "$1" "$2" && shift 2 && exec "$@"`
	unshare := []string{"--mount", "--propagation", "private", "sh", "-c", script, "sh", m.dir,
		m.seen, name}
	return exec.Command("unshare", append(unshare, args...)...)
}

// Kills is how many processes the kernel has ended because there was no memory left.
func (m *Memory) Kills(t testing.TB) int {
	t.Helper()
	file := "memory.oom_control"
	if m.v2 {
		file = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(m.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^oom_kill (\d+)$`).FindSubmatch(data)
	if found == nil {
		t.Fatalf("%s does not say how many were killed: %s", file, data)
	}
	kills, _ := strconv.Atoi(string(found[1]))
	return kills
}

// Most is the most memory that the programs ever had together.
func (m *Memory) Most(t testing.TB) int64 {
	t.Helper()
	file := "memory.max_usage_in_bytes"
	if m.v2 {
		file = "memory.peak" // since Linux 5.19
	}
	data, err := os.ReadFile(filepath.Join(m.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return most
}
