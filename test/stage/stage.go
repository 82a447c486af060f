// Package stage lets a program use what is written for tests: namespaces, servers and directories
// that live as long as a testing.TB.
//
//	err := stage.Run(ctx, func(t testing.TB) {
//		host := netns.New(t)
//		...
//	})
//
// Be aware:
//   - As in a test, Fatal and its kin may be called only from the goroutine that Run calls f on.
//   - testing.TB has methods that only package testing can write. Those of them that are not in
//     this file panic.
package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
)

// stage stands in for a test.
type stage struct {
	testing.TB
	ctx      context.Context // for Context, which testing.TB wants
	cleanups []func()

	mu   sync.Mutex
	errs []error
}

// Run calls f, takes down what it built, and returns what it failed with. The context of the stage
// ends with ctx, and before anything is taken down.
func Run(ctx context.Context, f func(testing.TB)) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &stage{ctx: ctx}
	done := make(chan struct{})
	go func() { // which Fatal ends
		defer close(done)
		defer s.takeDown()
		defer cancel()
		f(s)
	}()
	<-done
	return errors.Join(s.errs...)
}

// takeDown calls the cleanups, the last first. One that fails does not keep the others from being
// called.
func (s *stage) takeDown() {
	last := len(s.cleanups) - 1
	if last < 0 {
		return
	}
	cleanup := s.cleanups[last]
	s.cleanups = s.cleanups[:last]
	defer s.takeDown()
	cleanup()
}

func (*stage) Helper() {}

func (*stage) Logf(string, ...any) {}

func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *stage) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

func (s *stage) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// Skip fails: what a program needs is not there.
func (s *stage) Skip(args ...any) { s.Fatal(args...) }

func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "sidecar-cni")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
