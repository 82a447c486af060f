package nriserver

import (
	"errors"
	"slices"
	"time"

	"github.com/sidecar-cni/sidecar-cni/test/nriserver/line"
)

// AwaitSynchronized waits until n calls of Synchronize have ended since Start, those before a
// Restart included, and returns all that have.
func (s *Server) AwaitSynchronized(n int) []Synchronized {
	s.t.Helper()
	var all []Synchronized
	if !s.await(func() bool {
		all = slices.Clone(s.synchronized)
		return len(all) >= n
	}) {
		s.t.Fatalf("%d Synchronize have ended after %v, want %d: %+v\n%s", len(all), callTimeout,
			n, all, &s.stderr)
	}
	return all
}

// AwaitPlugins waits until those and no others have registered and are connected, under names such
// as 10-sidecar-cni. Two connections may have one name.
func (s *Server) AwaitPlugins(names ...string) {
	s.t.Helper()
	slices.Sort(names)
	var all []string
	if !s.await(func() bool {
		all = s.plugins
		return slices.Equal(all, names)
	}) {
		s.t.Fatalf("plugins %q are connected after %v, want %q\n%s", all, callTimeout, names,
			&s.stderr)
	}
}

// await waits until is returns true, which is called with the lock held.
func (s *Server) await(is func() bool) bool {
	timeout := time.NewTimer(callTimeout)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		done, changed := is(), s.changed
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timeout.C:
			return false
		}
	}
}

// hear takes an event of the program.
func (s *Server) hear(m line.Message) {
	s.change(func() {
		switch m.Event {
		case line.Plugins:
			s.plugins = m.Names
		case line.Synchronized:
			one := Synchronized{Plugin: m.Plugin, Messages: m.Messages, Took: m.Took}
			if m.Error != "" {
				one.Err = errors.New(m.Error)
			}
			s.synchronized = append(s.synchronized, one)
		}
	})
}

func (s *Server) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}
