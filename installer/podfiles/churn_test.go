package podfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/redirect/kubepod"
)

// Pods come, change and go, and whoever reads meanwhile never sees half a file or another pod's.
func TestNoTornFileIsSeen(t *testing.T) {
	t.Parallel()
	r := newAgent(t, t.TempDir(), newWorld())
	r.pass(true)
	done := make(chan struct{})
	var readers sync.WaitGroup
	seen := 0
	readers.Go(func() {
		for {
			seen += readAll(t, r.run)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for round := range 40 {
		r.world.pods = map[string]*corev1.Pod{}
		for i := range 250 {
			pod := sized(fmt.Sprint("u", i), 100*(round%7))
			if (i+round)%3 > 0 {
				r.world.put(pod)
			}
		}
		r.pass(round%5 == 0)
	}
	close(done)
	readers.Wait()
	if seen == 0 {
		t.Error("no file was read")
	}
	r.wantSum()
}

// readAll reads all files as the plugin does, and returns how many there were.
func readAll(t *testing.T, run string) int {
	n := 0
	for i := range 250 {
		uid := fmt.Sprint("u", i)
		data, err := os.ReadFile(filepath.Join(podfile.Dir(run), uid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		body, malformed := podfile.Decode(data)
		if err := errors.Join(err, malformed); err != nil {
			t.Errorf("%s: %v", uid, err)
			continue
		}
		if pod, err := kubepod.Parse(body); err != nil || pod.Metadata.UID != uid {
			t.Errorf("%s: %v, %v", uid, pod, err)
		}
		n++
	}
	return n
}
