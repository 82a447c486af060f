package nriserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

const self = "github.com/sidecar-cni/sidecar-cni/test/nriserver"

// programs are built once, by the version of the library that they have.
var programs = map[string]func() (*os.File, error){
	"0.12": sync.OnceValues(func() (*os.File, error) { return build("now") }),
	"0.8":  sync.OnceValues(func() (*os.File, error) { return build("old") }),
}

// build builds the program in a folder of this package. What it returns has no name any more, so
// that nothing is left behind, however the tests end.
func build(folder string) (_ *os.File, err error) {
	dir, err := os.MkdirTemp("", "nriserver")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, err := goTool(dir, "list", "-f", "{{.Dir}}", self)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, folder)
	// Plugins in WebAssembly, which the tag leaves out, are most of what there is to compile.
	_, err = goTool(dir, "-C", filepath.Join(source, folder), "build", "-buildvcs=false",
		"-tags", "nri_no_wasm", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// goTool runs the go command, whose temporary files are in dir.
func goTool(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOTMPDIR="+dir)
	var stderr strings.Builder // where it says what it downloads
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s%s", cmd, err, out, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
