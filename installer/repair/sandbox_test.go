package repair_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// mounted is a path of a namespace that is not in /proc, as runtimes have them.
func mounted(t *testing.T, ns *netns.NS) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cni-1")
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), path); err != nil {
		t.Fatal(err)
	}
	return path
}
