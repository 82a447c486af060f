//go:build e2e

package main

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestBuild builds for all platforms, twice: it is below the bound, or run says so, and the same.
func TestBuild(t *testing.T) {
	t.Chdir("../..")
	folders := []string{t.TempDir(), t.TempDir()}
	for _, folder := range folders {
		r := release{version: "1.2.3", out: folder}
		if err := r.run(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	sums := readFile(t, folders[0], "checksums.txt")
	if !bytes.Equal(sums, readFile(t, folders[1], "checksums.txt")) ||
		bytes.Count(sums, []byte("\n")) != len(platforms) {
		t.Errorf("two builds differ, or do not have all platforms:\n%s%s", sums,
			readFile(t, folders[1], "checksums.txt"))
	}
	archive := filepath.Join(folders[0], "sidecarctl_1.2.3_linux_"+runtime.GOARCH+".tar.gz")
	tree := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", tree, "-xzf",
		archive).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := filepath.Join(tree, "sidecarctl")
	binary, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it is not static")
		}
	}
	plugin := filepath.Join(tree, asPlugin)
	if err := os.Symlink("sidecarctl", plugin); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), plugin, "explain", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "kubectl sidecar-cni explain") {
		t.Errorf("%v\n%s", err, out)
	}
}

// asPlugin is the link that krew makes.
const asPlugin = "kubectl-sidecar_cni"
