package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// took is what one process took.
type took struct {
	wall, cpu time.Duration
	memory    int64 // bytes, at most
}

// rush is what many calls at once took, by their pods' files and by the agent's socket.
type rush struct{ byFiles, byAgents crowd }

type crowd struct{ all, slowest time.Duration }

const (
	warmUps = 3  // rounds that do not count: modules are loaded, files are read
	perRush = 10 // rounds
)

// measure has all cases take turns, and the many at once every now and then.
func (n *node) measure(runs int) report {
	info, err := os.Stat(n.programs.plugin)
	if err != nil {
		n.t.Fatal(err)
	}
	r := report{binary: info.Size()}
	for _, c := range n.cases() {
		r.rows = append(r.rows, row{testCase: c})
	}
	for round := -warmUps; round < runs && n.t.Context().Err() == nil; round++ {
		n.measureRound(&r, round)
		if round >= 0 && round%perRush == 0 {
			byFiles, byAgents := n.together()
			r.rushes = append(r.rushes, rush{n.measureRush(byFiles), n.measureRush(byAgents)})
		}
	}
	return r
}

// measureRound gives each case its turns: first one each, then those that have more take turns.
func (n *node) measureRound(r *report, round int) {
	for turn := range oftenTurns {
		for i := range r.rows {
			row := &r.rows[i]
			if turn >= max(1, row.turns) {
				continue
			}
			once := n.measureOnce(row.testCase, round == -warmUps && turn == 0)
			if round >= 0 {
				row.took = append(row.took, once)
			}
		}
	}
}

// measureOnce runs a case, and looks for its rules if verify is set.
func (n *node) measureOnce(c testCase, verify bool) took {
	s := n.idle
	if c.rules != nil {
		s = n.sandbox(n.pods[0])
	}
	cmd := n.process(c, s, n.programs.stopwatch)
	n.start(cmd)
	err := cmd.Wait()
	log, reading := cutLastLine(cmd.Stderr.(*bytes.Buffer).String())
	var wall, cpu, kib int64
	if _, scan := fmt.Sscan(reading, &wall, &cpu, &kib); scan != nil {
		n.t.Fatalf("%s: read stopwatch: %v: %q", c.name, scan, reading)
	}
	n.judge(c, cmd, log, err)
	if verify && c.rules != nil {
		n.verify(c, s)
	}
	return took{wall: time.Duration(wall), cpu: time.Duration(cpu), memory: kib << 10}
}

// cutLastLine splits a text before its last line.
func cutLastLine(text string) (before, last string) {
	text = strings.TrimSuffix(text, "\n")
	i := strings.LastIndexByte(text, '\n') + 1
	return text[:i], text[i:]
}

// measureRush starts a case for every pod at once.
func (n *node) measureRush(c testCase) crowd {
	var cmds []*exec.Cmd
	for _, pod := range n.pods {
		cmds = append(cmds, n.process(c, n.sandbox(pod)))
	}
	began, ends := make([]time.Time, len(cmds)), make([]time.Time, len(cmds))
	errs := make([]error, len(cmds))
	var all sync.WaitGroup
	for i, cmd := range cmds {
		began[i] = time.Now()
		n.start(cmd)
		all.Go(func() {
			errs[i] = cmd.Wait()
			ends[i] = time.Now()
		})
	}
	all.Wait()
	var r crowd
	for i, cmd := range cmds {
		n.judge(c, cmd, cmd.Stderr.(*bytes.Buffer).String(), errs[i])
		r.all, r.slowest = max(r.all, ends[i].Sub(began[0])), max(r.slowest, ends[i].Sub(began[i]))
	}
	return r
}

// judge ends it all for a call that did not do what it should.
func (n *node) judge(c testCase, cmd *exec.Cmd, log string, err error) {
	n.t.Helper()
	var have outcome
	if err == nil && c.want != have {
		_, line := cutLastLine(log)
		err = json.Unmarshal([]byte(line), &have)
	}
	if err != nil || have != c.want {
		n.t.Fatalf("%s: %+v, %v, want %+v\nstandard output: %s\nstandard error: %s", c.name, have,
			err, c.want, cmd.Stdout, cmd.Stderr)
	}
}

// verify ends it all if the pod's rules are not those that its policy asks for.
func (n *node) verify(c testCase, s sandbox) {
	n.t.Helper()
	recorded, err := record.Dir(n.state).
		Read(record.Attachment{Container: s.container, Interface: "eth0"})
	if err != nil {
		n.t.Fatalf("%s: %v", c.name, err)
	}
	var problems []redirect.Problem
	s.netns.Do(n.t, func() { problems, err = c.rules(redirect.Compile(recorded.Policy)) })
	if err != nil || len(problems) > 0 {
		n.t.Fatalf("%s: the rules differ: %v, %v", c.name, problems, err)
	}
}
