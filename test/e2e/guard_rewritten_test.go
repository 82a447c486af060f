//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// writeEvery is the pause between two writes of the other writer: fifty of them in a minute.
const writeEvery = 1200 * time.Millisecond

// takenOutGuarded: no meshed container starts without redirection, no sandbox fails, and no other
// pod is touched.
func (g *guarded) takenOutGuarded(t *testing.T) {
	c := g.takenOutOften(t, "guarded")
	if c.open > 0 {
		t.Errorf("%d of %d pods were open when their first container started", c.open, c.meshed)
	}
	if c.byGuard == 0 {
		t.Error("the guard had nothing to do, so nothing was tested")
	}
}

// takenOutUnguarded shows that the test sees open pods.
func (g *guarded) takenOutUnguarded(t *testing.T) {
	g.upgrade(t, "guard.mode=off")
	if c := g.takenOutOften(t, "unguarded"); c.open == 0 {
		t.Error("no pod was open without the guard, so the test with it tests nothing")
	}
}

// A count is of the pods that became ready while the entry was taken out again and again.
type count struct {
	meshed, open, plain int
	byGuard             int // redirected, as the agent says
}

// takenOutOften has another writer take our entry out while pods start, of which each fifth is not
// meshed.
func (g *guarded) takenOutOften(t *testing.T, space string) count {
	t.Helper()
	times := writes(t)
	l := g.followAgents(t)
	var c count
	made := 0
	seen := &findings{map[string][]string{}, map[string][]string{}}
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
	for range times {
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
	g.expectNoFailedSandbox(t, space)
	for name, found := range seen.plain {
		if slices.Contains(found, "redirected") {
			t.Errorf("%s, which is not meshed, was touched", name)
		}
	}
	for _, found := range seen.meshed {
		if slices.Contains(found, "open") {
			c.open++
		}
	}
	c.meshed, c.plain = len(seen.meshed), len(seen.plain)
	c.byGuard = len(pick(l.end(t), "redirected"))
	t.Logf("%s: the entry was taken out %d times in %s; of %d meshed pods %d were open when their "+
		"first container started, and %d were redirected by the guard; %d others were not touched",
		space, times, time.Duration(times)*writeEvery, c.meshed, c.open, c.byGuard, c.plain)
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
type findings struct{ meshed, plain map[string][]string } // by the pods' names

func (f *findings) add(pod *corev1.Pod, found []string) {
	if kindOf(pod) == "plain" {
		f.plain[pod.Name] = found
	} else {
		f.meshed[pod.Name] = found
	}
}
