package chain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// built makes the programs once for all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cni")
	if err == nil {
		err = lookAtSources()
	}
	if err != nil {
		return dir, err
	}
	// In the module's own folder go build needs no network, once the module cache is filled; go
	// install would.
	plugins, err := run("go", "list", "-C", root(), "-m", "-f", "{{.Dir}}", "github.com/containernetworking/plugins")
	if err != nil {
		return dir, err
	}
	_, err1 := run("go", "build", "-C", plugins, "-trimpath", "-o", dir+"/", "./plugins/main/bridge", "./plugins/ipam/host-local")
	_, err2 := run("go", "build", "-C", root(), "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "sidecar-cni"), "./plugin")
	return dir, errors.Join(err1, err2)
})

// lookAtSources has the go command know that the tests' results depend on these files: it repeats a
// test whose files have changed, and knows of those that the test itself has looked at.
func lookAtSources() error {
	look := func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			_, err = os.Stat(path)
		}
		return err
	}
	var errs []error
	for _, folder := range []string{"contract", "plugin", "redirect"} {
		errs = append(errs, filepath.WalkDir(filepath.Join(root(), folder), look))
	}
	return errors.Join(errs...)
}

func root() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err) // only without a working directory
	}
	return dir
}

func run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func TestMain(m *testing.M) {
	m.Run()
	if dir, err := built(); err == nil || dir != "" {
		os.RemoveAll(dir)
	}
}

// programs returns the directory of the plugins' binaries.
func programs(t testing.TB) string {
	t.Helper()
	netns.RequireRoot(t)
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
