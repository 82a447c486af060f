package chain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Build makes the programs of the chain in a directory: bridge, host-local and our plugin. The
// working directory has to be one of this module. If ctx ends, nothing is left outside of dir.
func Build(ctx context.Context, dir string) error {
	// In the module's own folder go build needs no network, once the module cache is filled; go
	// install would.
	plugins, err := goTool(ctx, dir, "list", "-m", "-f", "{{.Dir}}",
		"github.com/containernetworking/plugins")
	if err != nil {
		return err
	}
	_, err1 := goTool(ctx, dir, "build", "-C", plugins, "-trimpath", "-o", dir+"/",
		"./plugins/main/bridge", "./plugins/ipam/host-local")
	return errors.Join(err1, BuildOurs(ctx, filepath.Join(dir, "sidecar-cni"), "plugin"))
}

// BuildOurs makes one of our programs, from its folder in this module. Build's conditions hold.
func BuildOurs(ctx context.Context, path, folder string) error {
	_, err := goTool(ctx, filepath.Dir(path), "build", "-trimpath", "-ldflags", "-s -w", "-o", path,
		"github.com/sidecar-cni/sidecar-cni/"+folder)
	return err
}

// goTool runs the go command. Interrupted or killed, that leaves its temporary files, and the
// compilers that it started, so those are in dir, and all are killed together.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOTMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
