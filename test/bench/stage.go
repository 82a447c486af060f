package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// stage stands in for a test, which the namespaces and servers of the tests live as long as.
// testing.TB has methods that only its own package can write, so it is embedded, and what is not
// below is missing.
type stage struct {
	testing.TB
	cleanups []func()
}

// failure is how a stage ends early.
type failure struct{ error }

// onStage calls f, takes down what it built, and returns what it failed with.
func onStage(f func(testing.TB)) (err error) {
	s := &stage{}
	defer func() {
		for _, cleanup := range slices.Backward(s.cleanups) {
			cleanup()
		}
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f(s)
	return nil
}

func (*stage) Helper() {}

func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (*stage) Fatal(args ...any) { panic(failure{fmt.Errorf("%s", fmt.Sprint(args...))}) }

func (*stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
