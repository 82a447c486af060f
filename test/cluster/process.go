package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is one of the cluster's programs, which a test may stop and start. When it ends by
// itself it is started again, a little later each time, as a service manager would.
type Process struct {
	Name    string
	cluster *Cluster
	machine *machine
	args    []string
	ready   func(context.Context) error

	mu      sync.Mutex
	wanted  bool
	cmd     *exec.Cmd
	ends    []error       // by itself, since it was started
	settled chan struct{} // closed when it will not be started again; nil before it was
	recall  chan struct{} // closed when it is not wanted any more
}

const (
	// tries is how often a process may end by itself. A kubelet does, until its containerd is
	// there.
	tries = 40
	// longestPause is how long it is left alone in between.
	longestPause = time.Second
)

// Start starts the process and returns when it is ready.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.launch(t)
	p.cluster.Await(t, p.Name+" to be ready", p.ready)
}

// Stop ends the process as a service manager does: SIGTERM first, SIGKILL after ten seconds. Be
// aware that an API server waits for its clients, and they for it: kill it.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.end(t, unix.SIGTERM)
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.end(t, unix.SIGKILL)
}

// Log returns the last lines of what the process has said since the cluster started.
func (p *Process) Log(lines int) string {
	content, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(content), lines)
}

// logFile is not on the node's disk: a node whose disk is full still tells.
func (p *Process) logFile() string {
	return p.cluster.site.file("/run/cluster/log/" + strings.ReplaceAll(p.Name, " ", "-"))
}

func (p *Process) launch(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted {
		t.Fatalf("start %s: it runs", p.Name)
	}
	if err := p.spawn(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	p.wanted, p.ends = true, nil
	p.settled, p.recall = make(chan struct{}), make(chan struct{})
	go p.supervise(p.settled, p.recall)
}

func (p *Process) spawn() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = p.machine.command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	return p.machine.start(p.cmd)
}

// supervise returns when the process has ended and is not to be started again.
func (p *Process) supervise(settled, recall chan struct{}) {
	defer close(settled)
	for {
		err := p.cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		p.mu.Lock()
		p.ends = append(p.ends, err)
		again := p.wanted && len(p.ends) < tries
		p.mu.Unlock()
		if !again {
			return
		}
		select {
		case <-recall:
			return
		case <-time.After(min(longestPause, time.Duration(len(p.ends))*100*time.Millisecond)):
		}
		p.mu.Lock()
		again = p.wanted && p.spawn() == nil
		p.mu.Unlock()
		if !again {
			return
		}
	}
}

func (p *Process) end(t testing.TB, signal os.Signal) {
	t.Helper()
	p.forget()
	if p.settled == nil {
		return
	}
	p.mu.Lock()
	_ = p.cmd.Process.Signal(signal) // it may have ended
	p.mu.Unlock()
	select {
	case <-p.settled:
	case <-time.After(10 * time.Second):
		t.Logf("%s does not end: killed", p.Name)
		_ = p.cmd.Process.Kill()
		<-p.settled
	}
}

// forget is said of a process that is about to end.
func (p *Process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted {
		p.wanted = false
		close(p.recall)
	}
}

// fallen returns how a process ended that should run and is not started any more.
func (p *Process) fallen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return nil
	}
	select {
	case <-p.settled:
		return fmt.Errorf("%s ended %d times: %w\n%s", p.Name, len(p.ends), p.ends[len(p.ends)-1],
			p.Log(20))
	default:
		return nil
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
