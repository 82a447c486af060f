//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

// logEvery is how soon after it was made an agent's log is opened. What is open can be read when
// the agent and its pod have been deleted.
const logEvery = 20 * time.Millisecond

// An agentLog is what the agents of a node say while it is followed, those as well that end
// meanwhile.
type agentLog struct {
	pattern string
	pulse   *await.Pulse
	stop    context.CancelFunc
	done    chan error

	mu    sync.Mutex
	files map[string]*os.File // by path
	from  map[string]int64    // where they begin to be followed
}

// A said is a line of an agent's log.
type said struct {
	file string // which tells agents apart, and their restarts
	at   time.Time

	Level, Msg, Pod, Container, Outcome, Path string
}

// decided is what the guard says about a sandbox, and connected what it says when it knows all.
const (
	decided   = "decided about sandbox"
	connected = "connected to container runtime"
)

// followAgents follows until the end of the test. What was said before is not in it.
func (g *guarded) followAgents(t *testing.T) *agentLog {
	t.Helper()
	return followAgents(t, g.node)
}

func followAgents(t *testing.T, n *cluster.Node) *agentLog {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &agentLog{pattern: n.DiskFile("/var/log/pods/" + home + "_" + release + "-*/agent/*.log"),
		pulse: await.NewPulse(t, stoodStill), stop: stop, done: make(chan error, 1),
		files: map[string]*os.File{},
		from:  map[string]int64{}}
	if err := l.open(true); err != nil {
		t.Fatal(err)
	}
	go func() { l.done <- l.run(ctx) }()
	t.Cleanup(func() { l.close() })
	return l
}

func (l *agentLog) run(ctx context.Context) error {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.open(false)
		case <-tick.C:
		}
		if err := l.open(false); err != nil {
			return err
		}
	}
}

// open opens the logs that are new, and skips what the old ones say already.
func (l *agentLog) open(old bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths, err := filepath.Glob(l.pattern)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if l.files[path] != nil {
			continue
		}
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		l.files[path] = f
		if old {
			if l.from[path], err = f.Seek(0, io.SeekEnd); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *agentLog) close() {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		f.Close()
	}
}

// sofar returns what was said, in the order of each file.
func (l *agentLog) sofar() []said {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []said{}
	for path, f := range l.files {
		from := io.NewSectionReader(f, l.from[path], 1<<40)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			if s, ok := parseSaid(path, lines.Text()); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

// end ends it, and returns what was said.
func (l *agentLog) end(t *testing.T) []said {
	t.Helper()
	l.stop()
	if err := <-l.done; err != nil {
		t.Fatal(err)
	}
	return l.sofar()
}

// parseSaid reads a line as a runtime writes it: when, which stream, whether it is whole, what. It
// is not always the agent's, nor whole.
func parseSaid(file, line string) (said, bool) {
	s := said{file: file}
	at, rest, _ := strings.Cut(line, " ")
	_, text, found := strings.Cut(rest, "{")
	var err error
	s.at, err = time.Parse(time.RFC3339Nano, at)
	return s, found && err == nil && json.Unmarshal([]byte("{"+text), &s) == nil
}

// pick returns what the guard said about sandboxes, with one of the outcomes.
func pick(all []said, outcomes ...string) []said {
	found := []said{}
	for _, s := range all {
		for _, o := range outcomes {
			if s.Msg == decided && s.Outcome == o {
				found = append(found, s)
			}
		}
	}
	return found
}

// byPod are the names of the pods that lines are about, with the number of lines.
func byPod(lines []said) map[string]int {
	found := map[string]int{}
	for _, s := range lines {
		_, name, _ := strings.Cut(s.Pod, "/")
		found[name]++
	}
	return found
}

// connections are the lines of agents that the runtime has begun to ask.
func connections(all []said) []said {
	return slices.DeleteFunc(slices.Clone(all), func(s said) bool { return s.Msg != connected })
}
