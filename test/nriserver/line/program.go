package line

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// Pod is a pod of the library.
type Pod interface{ GetId() string }

// Container is a container of the library.
type Container interface {
	GetId() string
	GetPodSandboxId() string
}

// Library is the runtime's half of NRI in one version of the library.
type Library[P Pod, C Container] struct {
	// Start listens for plugins.
	Start func() error
	// Block keeps plugins from being synchronized until what it returns is called. Containerd does
	// so around each of the calls below.
	Block             func() (unblock func())
	Run, Stop, Remove func(context.Context, P) error
	Create            func(context.Context, P, C) error

	// StartContainer tells plugins that a container starts.
	StartContainer func(ctx context.Context, pod P, container C) error
}

// Settings come from the command line.
type Settings struct {
	Socket         string
	RuntimeName    string
	RuntimeVersion string
	RequestTimeout time.Duration // 0 is the library's default
	Validator      bool          // whether the library's own validator is enabled
}

// ParseSettings reads the arguments of a program.
func ParseSettings(args []string) (Settings, error) {
	var s Settings
	flags := flag.NewFlagSet("nriserver", flag.ContinueOnError)
	flags.StringVar(&s.Socket, "socket", "", "listen here")
	flags.StringVar(&s.RuntimeName, "runtime-name", "", "name told to plugins")
	flags.StringVar(&s.RuntimeVersion, "runtime-version", "", "version told to plugins")
	flags.DurationVar(&s.RequestTimeout, "request-timeout", 0, "how long a plugin may take")
	flags.BoolVar(&s.Validator, "validator", false, "enable the default validator")
	return s, flags.Parse(args)
}

// Program answers requests by a library. It knows the pods that run, as the runtime does.
type Program[P Pod, C Container] struct {
	out *output
	// Log is for the library.
	Log *Log

	mu         sync.Mutex
	started    bool
	pods       []P
	containers []C
}

// NewProgram makes one that writes its lines to stdout, and the library's log to stderr.
func NewProgram[P Pod, C Container](stdout, stderr io.Writer) *Program[P, C] {
	out := newOutput(stdout)
	return &Program[P, C]{out: out, Log: &Log{out: out, to: stderr, registered: map[string]int{}}}
}

// Synchronize tells plugins by call which pods and containers there are. The library does so first
// when it starts, with the plugins that it brings along, if any; that is no event.
func (p *Program[P, C]) Synchronize(call func([]P, []C) error) error {
	p.mu.Lock()
	pods, containers, first := slices.Clone(p.pods), slices.Clone(p.containers), !p.started
	p.started = true
	p.mu.Unlock()
	if first {
		return call(pods, containers)
	}
	start := time.Now()
	err := call(pods, containers)
	took := time.Since(start)
	plugin, messages := p.Log.lastSynchronize()
	p.out.write(Message{Event: Synchronized, Plugin: plugin, Messages: messages,
		Error: text(err), Took: took})
	return err
}

// Serve answers the requests of stdin by a library, until stdin ends. One that takes long does not
// keep others waiting.
func (p *Program[P, C]) Serve(stdin io.Reader, l Library[P, C]) error {
	for lines := json.NewDecoder(stdin); ; {
		var q Request[P, C]
		if err := lines.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		go func() {
			start := time.Now()
			err := p.answer(context.Background(), q, l)
			p.out.write(Message{ID: q.ID, Error: text(err), Took: time.Since(start)})
		}()
	}
}

func (p *Program[P, C]) answer(ctx context.Context, q Request[P, C], l Library[P, C]) error {
	switch q.Do {
	case Start:
		return l.Start()
	case Set:
		p.change(func() { p.pods, p.containers = q.Pods, q.Containers })
		return nil
	}
	unblock := l.Block()
	defer unblock()
	var err error
	switch q.Do {
	case RunPodSandbox:
		if err = l.Run(ctx, q.Pod); err == nil {
			p.change(func() { p.pods = append(p.pods, q.Pod) })
		}
	case CreateContainer:
		if err = l.Create(ctx, q.Pod, q.Container); err == nil {
			p.change(func() { p.containers = append(p.containers, q.Container) })
		}
	case StartContainer:
		err = l.StartContainer(ctx, q.Pod, q.Container)
	case StopPodSandbox:
		err = l.Stop(ctx, q.Pod)
	case RemovePodSandbox:
		err = l.Remove(ctx, q.Pod)
		p.change(func() { p.forget(q.Pod.GetId()) })
	default:
		err = fmt.Errorf("unknown request %q", q.Do)
	}
	return err
}

func (p *Program[P, C]) change(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
}

func (p *Program[P, C]) forget(pod string) {
	p.pods = slices.DeleteFunc(p.pods, func(one P) bool { return one.GetId() == pod })
	p.containers = slices.DeleteFunc(p.containers,
		func(one C) bool { return one.GetPodSandboxId() == pod })
}

// Main runs serve with the settings of the command line, and returns the exit status.
func Main[P Pod, C Container](serve func(Settings, *Program[P, C]) error) int {
	settings, err := ParseSettings(os.Args[1:])
	if err == nil {
		err = serve(settings, NewProgram[P, C](os.Stdout, os.Stderr))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
