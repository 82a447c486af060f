package chain

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	if err == nil {
		err = Build(context.Background(), dir)
	}
	return dir, err
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
	for _, folder := range []string{"../../contract", "../../plugin", "../../redirect"} {
		errs = append(errs, filepath.WalkDir(folder, look))
	}
	return errors.Join(errs...)
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

func newNode(t testing.TB) *Node {
	t.Helper()
	return NewNode(t, programs(t))
}
