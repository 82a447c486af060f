package node

import (
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// Of what may not be read nobody knows whether it is wrong.
func TestWithoutTheRightToRead(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for path, abouts := range map[string][]string{
		"etc/cni/net.d":         {"chain", "credentials"},
		list:                    {"chain"},
		filepath.Dir(token):     {"credentials"},
		"run/sidecar-cni":       {"socket", "records", "pod files"},
		"run/sidecar-cni/state": {"records"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.write(t, "run/sidecar-cni/state/c:eth0.json", "{}")
			m.run(t)
			m.chmod(t, path, 0o700)
			var r Report
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends with the goroutine
				if _, err := unix.SetfsuidRetUid(65534); err != nil {
					t.Error(err)
				}
				r = m.report(t)
			}()
			<-done
			for _, about := range abouts {
				if rows := r.about(about); len(rows) != 1 || rows[0].Verdict != verdict.Unknown ||
					rows[0].Remedy != "run this as root" {
					t.Errorf("%s: want it to be unknown:\n%s", about, text(t, r))
				}
			}
		})
	}
}
