//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// writeEvery is the pause between two writes of the other writer: fifty of them in a minute.
const writeEvery = 1200 * time.Millisecond

// takenOutGuarded: no meshed container starts without redirection, no sandbox fails, and no other
// pod is touched.
func (g *guarded) takenOutGuarded(t *testing.T) {
	var c count
	for i := range standstills {
		c = g.takenOutOften(t, fmt.Sprint("guarded-", i),
			func(c count) bool { return c.byGuard > 0 })
		if c.open+len(c.failed) == 0 || c.stood == 0 || i == standstills-1 {
			break
		}
		t.Logf("done again, since the machine stood still for %v: %d pods were open, and failed: %v",
			c.stood, c.open, c.failed)
	}
	if c.open > 0 {
		t.Errorf("%d of %d pods were open when their first container started", c.open, c.meshed)
	}
	for _, failed := range c.failed {
		t.Error(failed)
	}
	if c.byGuard == 0 {
		t.Error("the guard had nothing to do, so nothing was tested")
	}
}

// takenOutUnguarded shows that the test sees open pods.
func (g *guarded) takenOutUnguarded(t *testing.T) {
	g.upgrade(t, "guard.mode=off")
	c := g.takenOutOften(t, "unguarded", func(c count) bool { return c.open > 0 })
	for _, failed := range c.failed {
		t.Error(failed)
	}
	if c.open == 0 {
		t.Error("no pod was open without the guard, so the test with it tests nothing")
	}
}

// A count is of the pods that became ready while the entry was taken out again and again.
type count struct {
	meshed, open, plain int
	byGuard             int // redirected, as the agent says
	failed              []string
	stood               time.Duration // how long the machine stood still meanwhile
}

const (
	// mostWrites are made where none of the first has met a pod.
	mostWrites = 100
	// standstills is how often a step is done in which the machine stood still: the guard refuses
	// then, and the runtime goes on without it.
	standstills = 3
)

// takenOutOften has another writer take our entry out while pods start, of which each fifth is not
// meshed, until that was enough by what is known of it meanwhile.
func (g *guarded) takenOutOften(t *testing.T, space string, enough func(count) bool) count {
	t.Helper()
	times := writes(t)
	l := g.followAgents(t)
	made, began := 0, time.Now()
	seen := &findings{meshed: map[string][]string{}, plain: map[string][]string{}}
	see := func(p *corev1.Pod) error {
		found, err := g.looks(t.Context(), p, allLogs)
		seen.add(p, found)
		return err
	}
	pod := func(space, name string) *corev1.Pod {
		made++
		if made%5 == 0 {
			return lookingPlain(space, name)
		}
		return looking(space, name)
	}
	s := g.streamSeen(t, &stream{space: space, keeps: 15, seen: see}, often, pod)
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	written := 0
	for ; written < times || written < mostWrites &&
		!enough(count{open: seen.open(), byGuard: len(pick(l.sofar(), "redirected"))}); written++ {
		<-tick.C
		g.takeOut(t)
	}
	for _, p := range s.end(t) {
		if err := see(&p); err != nil {
			t.Error(err)
		}
	}
	g.putBack(t)
	g.Await(t, "the runtime to load the file",
		func(ctx context.Context) error { return g.loaded(ctx, g.ours) })
	c := count{failed: g.failedSandboxes(t, space)}
	for name, found := range seen.plain {
		if slices.Contains(found, "redirected") {
			t.Errorf("%s, which is not meshed, was touched", name)
		}
	}
	c.open, c.meshed, c.plain = seen.open(), len(seen.meshed), len(seen.plain)
	c.stood = l.pulse.Stood(began, time.Now())
	c.byGuard = len(pick(l.end(t), "redirected"))
	t.Logf("%s: the entry was taken out %d times in %s; of %d meshed pods %d were open when their "+
		"first container started, and %d were redirected by the guard; %d others were not touched",
		space, written, time.Duration(written)*writeEvery, c.meshed, c.open, c.byGuard, c.plain)
	g.deletePods(t, space)
	return c
}

// writes is how often the entry is taken out: `make soak` asks for 50 times, else it is a third.
func writes(t *testing.T) int {
	t.Helper()
	text := os.Getenv("WRITES")
	if text == "" {
		return 17
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WRITES is %q: want a number from 1", text)
	}
	return n
}

// findings are what the first containers of pods have found.
type findings struct {
	mu            sync.Mutex
	meshed, plain map[string][]string // by the pods' names
}

// open is how many meshed pods were.
func (f *findings) open() (sum int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, found := range f.meshed {
		if slices.Contains(found, "open") {
			sum++
		}
	}
	return sum
}

func (f *findings) add(pod *corev1.Pod, found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kindOf(pod) == "plain" {
		f.plain[pod.Name] = found
	} else {
		f.meshed[pod.Name] = found
	}
}
