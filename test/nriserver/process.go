package nriserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/test/nriserver/line"
)

// callTimeout is far more than the library gives a plugin.
const callTimeout = time.Minute

type request = line.Request[*Pod, *Container]

// process is a running program.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed when it has ended and all that it said is read

	mu      sync.Mutex
	last    int
	waiting map[int]chan line.Message

	sending sync.Mutex
	encoder *json.Encoder
}

// start runs a program, and calls hear with each of its events. It ends with its standard input: a
// signal at the death of the parent would come when that thread ends which has started it.
func start(cmd *exec.Cmd, hear func(line.Message)) (*process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{}),
		encoder: json.NewEncoder(stdin), waiting: map[int]chan line.Message{}}
	go func() {
		defer close(p.ended)
		p.read(json.NewDecoder(stdout), hear)
		_ = cmd.Process.Kill() // if it says what is no message
		_ = cmd.Wait()         // it never ends well: it is killed
	}()
	return p, nil
}

func (p *process) read(lines *json.Decoder, hear func(line.Message)) {
	for {
		var m line.Message
		if err := lines.Decode(&m); err != nil {
			return
		}
		if m.Event != "" {
			hear(m)
			continue
		}
		p.mu.Lock()
		reply := p.waiting[m.ID]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		if reply != nil {
			reply <- m
		}
	}
}

var (
	errTimeout = errors.New("no answer within " + callTimeout.String())
	errEnded   = errors.New("the runtime has ended")
)

// call asks for something. What it returns beside an error of the runtime is how long that took.
func (p *process) call(q request) (time.Duration, error) {
	reply := make(chan line.Message, 1)
	sent := make(chan error, 1)
	go func() { // as a stopped program reads nothing
		p.mu.Lock()
		p.last++
		q.ID = p.last
		p.waiting[q.ID] = reply
		p.mu.Unlock()
		p.sending.Lock()
		defer p.sending.Unlock()
		sent <- p.encoder.Encode(q)
	}()
	timeout := time.NewTimer(callTimeout)
	defer timeout.Stop()
	for {
		select {
		case err := <-sent:
			if err != nil {
				return 0, fmt.Errorf("%w: %w", errEnded, err)
			}
			sent = nil
		case m := <-reply:
			if m.Error != "" {
				return m.Took, errors.New(m.Error)
			}
			return m.Took, nil
		case <-p.ended:
			return 0, errEnded
		case <-timeout.C:
			return 0, errTimeout
		}
	}
}

// kill ends it, stopped or not, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.stdin.Close()
}

// stop sends SIGSTOP, and waits until all of its threads have stopped.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(callTimeout); time.Now().Before(end); <-time.After(time.Millisecond) {
		var info unix.Siginfo
		// Left waitable, as it belongs to whoever waits for the program's end.
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info,
			unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err != nil || info.Signo != 0 {
			return err
		}
	}
	return errTimeout
}

// record keeps what a program writes.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// String returns all of it.
func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}
