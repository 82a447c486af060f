// Package podfiles writes the files of pods for tests, as docs/agent-protocol.md says that an agent
// does, and not by the agent's code, so that the two can be held against each other.
//
//	files := podfiles.New(t, run)
//	files.Put(pod, "")
//	files.Refresh(0)
//
// Without Refresh they are stale. They are believed only if the tests run as root.
package podfiles

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
)

// Files are those of a node.
type Files struct {
	t     testing.TB
	dir   string
	fresh *os.File // nil, or locked
}

// New makes the directory, in the agents' run directory.
func New(t testing.TB, run string) *Files {
	t.Helper()
	f := &Files{t: t, dir: filepath.Join(run, "pods")}
	err := os.MkdirAll(f.dir, 0o700)
	if err == nil {
		err = os.Chmod(run, 0o700) // it may be a test's own, whose mode is the umask's
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Abandon)
	return f
}

// Path returns that of a file in the directory; "" is the directory itself.
func (f *Files) Path(name string) string { return filepath.Join(f.dir, name) }

// Put writes the file of a pod, with the handler of its runtime class.
func (f *Files) Put(pod *corev1.Pod, handler string) {
	f.t.Helper()
	body, err := json.Marshal(struct {
		*corev1.Pod
		RuntimeHandler string `json:"runtimeHandler,omitempty"`
	}{pod, handler})
	if err != nil {
		f.t.Fatal(err)
	}
	f.Write(string(pod.UID), string(body))
}

// Write writes the file of a uid, whatever is to be behind its head.
func (f *Files) Write(uid, body string) {
	f.t.Helper()
	f.replace(uid, fmt.Sprintf("sidecar-cni pod %d %d\n%s", podfile.Form, len(body), body))
}

// Refresh says that all files were true then, and keeps saying so until Abandon.
func (f *Files) Refresh(ago time.Duration) {
	f.t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		f.t.Fatal(err)
	}
	last := f.fresh
	f.fresh = f.replace(".fresh", fmt.Sprintf("%019d\n", now.Nano()-ago.Nanoseconds()))
	if last != nil {
		last.Close()
	}
}

// Abandon is what the end of the agent does, however it ends.
func (f *Files) Abandon() {
	if f.fresh != nil {
		f.fresh.Close()
	}
	f.fresh = nil
}

// replace renames a file of its own into place. It returns it open, and locked if it is to be.
func (f *Files) replace(name, content string) *os.File {
	f.t.Helper()
	file, err := os.OpenFile(f.Path(".new"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	if name == ".fresh" {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	} else {
		defer file.Close()
	}
	if err == nil {
		_, err = file.WriteString(content)
	}
	if err == nil {
		err = os.Rename(file.Name(), f.Path(name))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return file
}
