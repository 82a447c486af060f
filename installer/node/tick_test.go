package node

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Where the kernel has no watch left for us, there is still the clock; and the log says so, once.
func TestTicksWithoutWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		w := &watch{paths: []string{"/etc/cni/net.d"}, log: zap.New(core),
			armed: map[string]os.FileInfo{}, signals: make(chan struct{}, 1)}
		for range 2 {
			w.complain(os.ErrInvalid)
		}
		w.arm()
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx, &fsnotify.Watcher{})
		began := time.Now()
		for range 3 {
			<-w.signals
		}
		if took := time.Since(began); took != 3*tick {
			t.Errorf("three signals took %v", took)
		}
		cancel()
		if _, open := <-w.signals; open {
			t.Error("a signal after the end")
		}
		if logs.Len() != 1 {
			t.Errorf("log: %v", logs.All())
		}
	})
}
