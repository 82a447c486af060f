package onnode

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
)

const (
	program   = "/sidecarctl" // this one, in the agent's image
	container = "agent"       // the agent's, in its pod
	exitUsage = 2
	exitAmiss = 3 // something is not as it should be, as the answer says
)

// StdinFlag says how many bytes of standard input are the file that is read from it. What comes
// behind says nothing, but when it ends so does the command: nothing runs on in the agent of
// somebody who has gone.
const StdinFlag = "stdin-bytes"

// Call is one command in the agent.
type Call struct {
	Args     []string  // without the program
	Manifest []byte    // what -f - reads; nil for none
	Stdout   io.Writer // gets what it writes

	Timeout time.Duration // of Ask; 0 is a minute
}

// farewell is how long a command has to end when nobody waits for it any more.
const farewell = 3 * time.Second

// endTimeout is how long a stream has to end that was broken off.
const endTimeout = time.Second

// Run runs this program in the agent until ctx ends. The exit code is 0, or 3 where something is
// not as it should be. A command with a manifest may still say at the end of ctx what it comes to.
func (a Agent) Run(ctx context.Context, c Call) (code int, err error) {
	asked, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leave := stop
	args := c.Args
	var stdin io.Reader
	if c.Manifest != nil {
		args = append(slices.Clone(args), "-f", "-",
			"--"+StdinFlag+"="+strconv.Itoa(len(c.Manifest)))
		rest, end := io.Pipe()
		defer func() { _ = end.Close() }() // a pipe's always succeeds
		stdin = io.MultiReader(bytes.NewReader(c.Manifest), rest)
		leave = func() {
			_ = end.Close()
			time.AfterFunc(farewell, stop)
		}
	}
	defer context.AfterFunc(ctx, leave)() //nolint:revive // what is deferred takes leave back
	executor, err := a.executor(args, stdin != nil)
	if err != nil {
		return 0, fmt.Errorf("run in agent %s/%s: %w", a.Namespace, a.Name, err)
	}
	stderr, stdout := &tail{}, &taker{to: c.Stdout, refused: stop}
	err = streamed(asked, executor, remotecommand.StreamOptions{
		Stdin: stdin, Stdout: stdout, Stderr: stderr,
	})
	if err := stdout.failed(); err != nil {
		return 0, err
	}
	return a.ended(ctx, err, stderr.String())
}

// streamed streams until ctx ends at the latest. The library waits for a server that accepts a
// connection, and does not answer the handshake of WebSocket, whatever becomes of ctx.
func streamed(ctx context.Context, executor remotecommand.Executor,
	o remotecommand.StreamOptions) error {
	ended := make(chan error, 1)
	go func() { ended <- executor.StreamWithContext(ctx, o) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endTimeout):
		return ctx.Err()
	}
}

// A taker ends a command of which nobody takes any more: it would wait for that forever.
type taker struct {
	to      io.Writer
	refused func()

	mu  sync.Mutex // of err: a stream that is broken off may still be written to
	err error
}

func (t *taker) Write(data []byte) (int, error) {
	n, err := t.to.Write(data)
	if err != nil {
		t.mu.Lock()
		t.err = err
		t.mu.Unlock()
		t.refused()
	}
	return n, err
}

func (t *taker) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// executor asks by WebSocket, and where API server or kubelet are too old for it by SPDY. Neither
// goes where the answer redirects it to.
func (a Agent) executor(args []string, stdin bool) (remotecommand.Executor, error) {
	query := url.Values{"container": {container}, "stdout": {"true"}, "stderr": {"true"},
		"command": append([]string{program}, args...)}
	if stdin {
		query.Set("stdin", "true")
	}
	request, err := api.At(a.client, "/api/v1", "namespaces", a.Namespace, "pods", a.Name, "exec")
	if err != nil {
		return nil, err
	}
	u := request.URL()
	u.RawQuery = query.Encode()
	socket, err := remotecommand.NewWebSocketExecutor(a.config, "GET", u.String())
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(a.config)
	if err != nil {
		return nil, err
	}
	older, err := remotecommand.NewSPDYExecutorRejectRedirects(transport, upgrader, "POST", u)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// ended says how a command has ended.
func (a Agent) ended(ctx context.Context, err error, stderr string) (int, error) {
	where := fmt.Sprintf("agent %s/%s of node %s", a.Namespace, a.Name, a.Node)
	coded, ended := errors.AsType[exec.CodeExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil && !ended:
		return 0, context.Cause(ctx)
	case ended && coded.Code == exitAmiss:
		return coded.Code, nil
	case ended && coded.Code > exitUsage:
		return coded.Code, fmt.Errorf("%s: the command ended with %d: %s", where, coded.Code,
			said(stderr))
	case ended:
		return coded.Code, fmt.Errorf("%s: %s", where, said(stderr))
	case strings.Contains(err.Error(), "is forbidden: "): // the Status is not in the error
		return 0, fmt.Errorf("run in %s: it is forbidden: have a role bound to you with the verbs "+
			"create and get for pods/exec in namespace %q, which is root on its nodes: see "+
			"docs/security.md", where, a.Namespace)
	case strings.Contains(err.Error(), program+": no such file"),
		strings.Contains(err.Error(), strconv.Quote(program)+": stat"):
		return 0, fmt.Errorf("run in %s: its image has no %s, it is of an older version: update it",
			where, program)
	}
	return 0, fmt.Errorf("run in %s: %w", where, err)
}

// said is the message of a command that failed.
func said(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	last := strings.TrimPrefix(lines[len(lines)-1], "sidecarctl: ")
	if last == "" {
		return "it failed, and did not say why"
	}
	return last
}

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex // as of taker
	kept []byte
}

const tailSize = 4 << 10

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, data[max(0, len(data)-tailSize):]...)
	t.kept = t.kept[max(0, len(t.kept)-tailSize):]
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// maxAnswer is how much is taken of an answer.
const maxAnswer = 64 << 20

// answerTimeout is how long an agent may take to look into the pods of its node.
const answerTimeout = time.Minute

// Ask runs a command and reads its answer. The exit code is as of Run.
func Ask[T any](ctx context.Context, a Agent, c Call) (answer T, code int, err error) {
	out := &limited{}
	c.Stdout = out
	timeout := cmp.Or(c.Timeout, answerTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("agent %s/%s of node %s has "+
		"not answered for %s", a.Namespace, a.Name, a.Node, timeout))
	defer cancel()
	if code, err = a.Run(ctx, c); err != nil {
		return answer, code, err
	}
	if err := json.Unmarshal(out.data.Bytes(), &answer); err != nil {
		return answer, code, fmt.Errorf("read the answer of agent %s/%s, which may be of another "+
			"version: %w", a.Namespace, a.Name, err)
	}
	return answer, code, nil
}

// Facts asks for what the agent's node knows of the pods with some uids.
func (a Agent) Facts(ctx context.Context, uids []string) (Facts, error) {
	facts, _, err := Ask[Facts](ctx, a, Call{Args: append([]string{FactsVerb, "--"}, uids...),
		Timeout: api.Timeout})
	return facts, err
}

// limited takes maxAnswer bytes. The buffer is not embedded: what copies into it must come by
// Write.
type limited struct{ data bytes.Buffer }

func (b *limited) Write(data []byte) (int, error) {
	if b.data.Len()+len(data) > maxAnswer {
		return 0, fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)
	}
	return b.data.Write(data)
}
