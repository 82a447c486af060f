package repair_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

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

// plain is a pod without a sidecar.
func plain(name string) *corev1.Pod {
	pod := meshed(name, nil)
	pod.Annotations = nil
	return pod
}
