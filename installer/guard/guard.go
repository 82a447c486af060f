// Package guard answers the container runtime's question whether a sandbox may go on, after its
// network was set up and before any of its containers is there. A pod that is ours and that nobody
// has redirected is redirected then, or does not start. The runtime asks through NRI
// (github.com/containerd/nri), which containerd has since 1.7 and CRI-O since 1.26, switched on
// since 2.0 and 1.30.
//
//	g := guard.New(guard.Config{Mode: guard.Auto, Socket: "/var/run/nri/nri.sock", ...},
//		guard.Deps{...})
//	g.Run(ctx, known)
//
// What becomes of a sandbox, in this order:
//
//	not ours by what the runtime knows of it, or in the host's network   passes, nothing is opened
//	a record of this very sandbox and namespace                           passes: ADD was there
//	another tool's rules redirect it                                      passes
//	not ours, by the whole pod from the cache or the API server           passes
//	anything else                                                         gets its rules and its
//	                                                                      record, or is refused
//
// Refused is also what nobody can decide, and what takes longer than half a second: the runtime
// itself waits for two, and then starts the pod.
//
// At connecting the runtime names the sandboxes that there are. Those in which nothing runs yet are
// decided as new ones are; since nobody can refuse them any more, what was not redirected is
// decided again at its first container, which can be refused. Those that run without redirection
// are counted and left to package repair.
//
// Be aware:
//   - It stands beside the chain, not in its place: while this program is away, or does not answer,
//     the runtime starts pods without it. docs/guard.md says what closes that gap.
//   - Nothing here may wait for the ADD of a pod: the runtime holds Synchronize back until the ADDs
//     under way have ended, and those ask this program's socket.
//   - The runtime asks about one pod at a time.
package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/semaphore"

	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/daemon/events"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Mode says whether sandboxes are guarded, and what becomes of one that is not redirected.
type Mode string

// The modes.
const (
	Auto   Mode = "auto"   // it is redirected; where there is no socket, nothing is guarded
	Refuse Mode = "refuse" // it is refused; likewise
	Off    Mode = "off"    // nothing is guarded
)

// Config is what an administrator decides.
type Config struct {
	Mode     Mode            // off: Run ends at once
	Socket   string          // the runtime's, of NRI
	Redirect redirect.Config // the plugin's, so that both decide the same
	Records  record.Dir      // the plugin's
	HostProc string          // where the host's /proc is; "" if nowhere
	PodUID   string          // of the agent's own pod, which the runtime runs; "" outside of one

	// InRoot calls a function where iptables' programs are, on a thread that is its own. Nil: here.
	InRoot func(do func() error) error
}

// Deps is what a Guard works with.
type Deps struct {
	Find    func(context.Context, agent.Ref) agent.Answer // the pod, from the cache or API server
	Handler func(class string) string                     // of a runtime class; "": not known
	// Backend is that of the plugin's conf; "" as long as none works on the node.
	Backend func() string
	// InCharge says that this agent is to act: it has not been taken out, no newer one has taken
	// over, and no other mesh's plugin is in the chain. Otherwise every sandbox passes.
	InCharge func() bool
	Repair   func()       // asks package repair to look at the running pods at once
	Locks    *podns.Locks // whoever else writes into namespaces has the same

	Events   *events.Events        // where the pods' owners are told
	Registry prometheus.Registerer // for the metrics
	Log      *zap.Logger           // gets a line for each pod that was redirected, refused or open
}

// Guard guards the sandboxes of a node.
type Guard struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	room    *semaphore.Weighted // by the rules that are written at the same time
	lines   chan func()         // of the log, which may block: no answer waits for it
	dropped atomic.Int64        // lines that there was no room for

	first sync.Once
	tried chan struct{} // closed once it has connected, or has tried to

	mu    sync.Mutex
	known map[string]outcome // of sandboxes by id, when the guard last connected
}

// New returns a Guard. It does nothing before Run is called.
func New(cfg Config, deps Deps) *Guard {
	return &Guard{cfg: cfg, deps: deps, metrics: newMetrics(deps.Registry),
		room: semaphore.NewWeighted(redirect.MaxRules), lines: make(chan func(), queued),
		tried: make(chan struct{})}
}

// queued is how many lines of the log can wait.
const queued = 512

const (
	// knowTimeout is how long it waits to know the node's pods before it connects: without an API
	// server it knows none, and most sandboxes are decided without.
	knowTimeout = 5 * time.Second
	// The pauses before it connects again. Without a socket that is a system call a second.
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// Run guards until ctx ends: it connects when the socket is there, and again after each loss. known
// waits until the node's pods are known, and its error is that of its context.
func (g *Guard) Run(ctx context.Context, known func(context.Context) error) {
	defer g.hasTried()
	if g.cfg.Mode == Off {
		return
	}
	logging := make(chan struct{})
	go func() {
		defer close(logging)
		g.writeLog(ctx)
	}()
	defer func() { <-logging }()
	learning, cancel := context.WithTimeout(ctx, knowTimeout)
	_ = known(learning)
	cancel()
	var logged string // the last failure
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		began := time.Now()
		synchronized, err := g.connect(ctx)
		g.hasTried()
		if noSocket(err) {
			g.metrics.gone()
		} else {
			g.metrics.absent()
		}
		if synchronized && time.Since(began) > longestPause {
			pause, logged = firstPause, ""
		}
		if ctx.Err() == nil && fmt.Sprint(err) != logged {
			logged = fmt.Sprint(err)
			g.logLoss(synchronized, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (g *Guard) hasTried() { g.first.Do(func() { close(g.tried) }) }

// triedTimeout is far more than a runtime takes that answers.
const triedTimeout = 3 * time.Second

// AwaitTried waits until the guard has heard which sandboxes there are, or has tried to, or ctx
// ends, or some seconds are over. Who looks at running pods only then leaves those to the guard
// that it knows better: it has their sandboxes' ids.
func (g *Guard) AwaitTried(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, triedTimeout)
	defer cancel()
	select {
	case <-g.tried:
	case <-ctx.Done():
	}
}

// log writes a line when it can. Nobody waits for it.
func (g *Guard) log(level zapcore.Level, message string, fields ...zap.Field) {
	select {
	case g.lines <- func() { g.deps.Log.Log(level, message, fields...) }:
	default:
		g.dropped.Add(1)
	}
}

// writeLog writes the lines that log was given, until ctx ends.
func (g *Guard) writeLog(ctx context.Context) {
	for {
		select {
		case line := <-g.lines:
			line()
		case <-ctx.Done():
			return
		}
		if n := g.dropped.Swap(0); n > 0 {
			g.deps.Log.Warn("left out lines of the guard's log", zap.Int64("lines", n))
		}
	}
}

func (g *Guard) logLoss(synchronized bool, err error) {
	switch {
	case noSocket(err) && !synchronized:
		g.log(zap.DebugLevel, "found no NRI socket", zap.String("path", g.cfg.Socket),
			zap.Error(err))
	case synchronized:
		g.log(zap.WarnLevel, "lost container runtime: sandboxes start unguarded",
			zap.String("path", g.cfg.Socket), zap.Error(err))
	default:
		g.log(zap.WarnLevel, "did not connect to container runtime: sandboxes start unguarded",
			zap.String("path", g.cfg.Socket), zap.Error(err))
	}
}

func noSocket(err error) bool { return errors.Is(err, fs.ErrNotExist) }
