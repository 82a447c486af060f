package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/nri/pkg/version"
	"github.com/containerd/ttrpc"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

const (
	// index is the guard's place among the node's NRI plugins: late, since another one may still
	// change the pod's network.
	index = "90"
	// answerTimeout is for the runtime's answer to the registration, and for what it asks next. It
	// takes one connection at a time, and waits for 5 s for one that says nothing.
	answerTimeout = 10 * time.Second
	dialTimeout   = time.Second
	drainTimeout  = time.Second // for answers that are under way when the agent ends
)

// A session is one connection with the runtime. The library's package stub would do what is here,
// but it waits forever for a runtime that takes a registration and then says nothing, and keeps all
// that Synchronize tells until it is complete, 20 MB on a full node.
type session struct {
	guard      *Guard
	configured chan struct{} // closed once the runtime has asked what is wanted
	once       sync.Once     // closes it
	answering  sync.RWMutex  // held to read while the runtime waits for an answer

	mu           sync.Mutex
	limits       limits
	runtime      string // its name
	synchronized bool
	elsewhere    bool // the node's pods are another runtime's
	told         told
	undecided    map[string]sandbox // by id; each is decided at its next container
}

// told is what Synchronize has told so far: it comes in parts.
type told struct {
	sandboxes []sandbox
	running   map[string]bool // ids of sandboxes in which something runs
}

// connect guards through one connection, until it ends. It reports whether the runtime has counted
// the guard as present.
func (g *Guard) connect(ctx context.Context) (synchronized bool, err error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", g.cfg.Socket)
	if err != nil {
		return false, err
	}
	g.metrics.absent()
	mux := multiplex.Multiplex(conn)
	defer func() { _ = mux.Close() }()
	listener, err := mux.Listen(multiplex.PluginServiceConn)
	if err != nil {
		return false, err
	}
	outward, err := mux.Open(multiplex.RuntimeServiceConn)
	if err != nil {
		return false, err
	}
	s := &session{guard: g, configured: make(chan struct{})}
	server, err := ttrpc.NewServer()
	if err != nil {
		return false, err
	}
	server.RegisterService(pluginService, s.service())
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // ends those that are under way
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(calls, listener) }) // it ends with its listener
	defer serving.Wait()
	defer listener.Close()
	defer func() { _ = server.Close() }()

	lost := make(chan struct{})
	client := ttrpc.NewClient(outward, ttrpc.WithOnClose(func() { close(lost) }))
	defer func() { _ = client.Close() }()
	if err := s.register(ctx, api.NewRuntimeClient(client), lost); err != nil {
		return false, err
	}
	select {
	case <-lost:
		err = errLost
	case <-ctx.Done():
		err = ctx.Err()
		s.drain()
	}
	return s.present(), err
}

// drain waits for the answers that are under way. What takes longer is not answered, and its pod
// starts.
func (s *session) drain() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.answering.Lock() // and never let go: nothing is answered any more
	}()
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

var errLost = errors.New("the runtime closed the connection")

// register has the runtime know the guard, and waits until it has asked what the guard wants.
func (s *session) register(ctx context.Context, runtime api.RuntimeService,
	lost <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := runtime.RegisterPlugin(ctx, &api.RegisterPluginRequest{
		PluginName: names.Plugin, PluginIdx: index, NRIVersion: version.GetFromBuildInfo(),
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	select {
	case <-s.configured:
		return nil
	case <-lost:
		return fmt.Errorf("register: %w", errLost)
	case <-ctx.Done():
		return fmt.Errorf("register: the runtime took it and asked for nothing: %w", ctx.Err())
	}
}

// present reports whether the runtime has counted the guard as present.
func (s *session) present() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synchronized
}

// configure answers what the guard wants to be asked.
func (s *session) configure(_ context.Context,
	req *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	s.mu.Lock()
	s.runtime = req.GetRuntimeName()
	s.limits = limitsOf(time.Duration(req.GetRequestTimeout()) * time.Millisecond)
	s.mu.Unlock()
	s.guard.log(zap.DebugLevel, "registered with container runtime",
		zap.String("runtime", req.GetRuntimeName()), zap.String("version", req.GetRuntimeVersion()),
		zap.String("nri", req.GetNRIVersion()))
	s.once.Do(func() { close(s.configured) })
	var wanted api.EventMask
	wanted.Set(api.Event_RUN_POD_SANDBOX, api.Event_CREATE_CONTAINER,
		api.Event_START_CONTAINER)
	return &api.ConfigureResponse{Events: int32(wanted)}, nil
}

// limits are how long the guard takes for an answer.
type limits struct {
	one time.Duration // about one sandbox
	all time.Duration // about those that are told at connecting
}

// The usual limits, far within the two seconds that runtimes wait.
const (
	usualOne = 450 * time.Millisecond
	usualAll = 1500 * time.Millisecond
)

// limitsOf are those with a runtime that waits for so long; 0 if it does not say.
func limitsOf(patience time.Duration) limits {
	if patience <= 0 {
		return limits{usualOne, usualAll}
	}
	return limits{min(usualOne, patience*3/4), min(usualAll, patience*3/4)}
}

// runPodSandbox is the runtime's question whether a sandbox may go on.
func (s *session) runPodSandbox(ctx context.Context,
	req *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	return &api.RunPodSandboxResponse{}, s.ask(ctx, s.sandbox(req.GetPod()), atStart)
}

// stateChange is the same of runtimes with NRI 0.8, such as containerd 2.0's.
func (s *session) stateChange(ctx context.Context, req *api.StateChangeEvent) (*api.Empty, error) {
	switch req.GetEvent() {
	case api.Event_RUN_POD_SANDBOX:
		return &api.Empty{}, s.ask(ctx, s.sandbox(req.GetPod()), atStart)
	case api.Event_START_CONTAINER:
		return &api.Empty{}, s.askLater(ctx, req.GetPod().GetId())
	default:
		return &api.Empty{}, nil
	}
}

// createContainer decides about a sandbox that was not decided at connecting.
func (s *session) createContainer(ctx context.Context,
	req *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	return &api.CreateContainerResponse{}, s.askLater(ctx, req.GetPod().GetId())
}

// startContainer does the same for a container that was created before.
func (s *session) startContainer(ctx context.Context,
	req *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	return &api.StartContainerResponse{}, s.askLater(ctx, req.GetPod().GetId())
}

// askLater decides about a sandbox that was not decided at connecting, if it is one.
func (s *session) askLater(ctx context.Context, id string) error {
	s.mu.Lock()
	one, undecided := s.undecided[id]
	s.mu.Unlock()
	if !undecided {
		return nil
	}
	err := s.ask(ctx, one, atContainer)
	if err == nil {
		s.mu.Lock()
		delete(s.undecided, id)
		s.mu.Unlock()
	}
	return err
}

// ask decides about a sandbox within the limit. An error refuses it.
func (s *session) ask(ctx context.Context, one sandbox, when moment) error {
	s.mu.Lock()
	limit, elsewhere := s.limits.one, s.elsewhere
	s.mu.Unlock()
	began := time.Now()
	v := verdict{outcome: passed}
	switch {
	case elsewhere:
	case when == atStart:
		v = s.guard.decideWithin(ctx, limit, one, isNew)
	default:
		v = s.guard.decideWithin(ctx, limit, one, idles)
	}
	if v.outcome == refused {
		v.err = one.refusal(v)
	}
	s.guard.report(one, when, v, time.Since(began))
	return v.err
}

// synchronize decides about the sandboxes that there are, once the last part has come.
func (s *session) synchronize(ctx context.Context,
	req *api.SynchronizeRequest) (*api.SynchronizeResponse, error) {
	s.mu.Lock()
	s.told.add(s, req)
	all, limit := s.told, s.limits.all
	if !req.GetMore() {
		s.told = told{}
	}
	s.mu.Unlock()
	if req.GetMore() {
		return &api.SynchronizeResponse{More: true}, nil
	}
	elsewhere, undecided := !s.guard.knownTo(all), map[string]sandbox{}
	if !elsewhere {
		undecided = s.guard.catchUp(ctx, limit, all)
		s.guard.metrics.present()
	}
	s.mu.Lock()
	s.undecided, s.elsewhere, s.synchronized = undecided, elsewhere, true
	s.mu.Unlock()
	s.guard.hasTried()
	path := zap.String("path", s.guard.cfg.Socket)
	if elsewhere {
		s.guard.log(zap.WarnLevel, "another container runtime runs this node's pods: they start "+
			"unguarded", path)
		return &api.SynchronizeResponse{}, nil
	}
	s.guard.log(zap.InfoLevel, "connected to container runtime", path,
		zap.Int("sandboxes", len(all.sandboxes)), zap.Int("undecided", len(undecided)))
	return &api.SynchronizeResponse{}, nil
}

// knownTo reports whether the runtime that told all that runs the agent's own pod. A node may have
// an idle containerd beside the runtime of its pods.
func (g *Guard) knownTo(all told) bool {
	return g.cfg.PodUID == "" || slices.ContainsFunc(all.sandboxes,
		func(one sandbox) bool { return one.uid == g.cfg.PodUID })
}

// add takes down a part.
func (t *told) add(s *session, req *api.SynchronizeRequest) {
	if t.running == nil {
		t.running = map[string]bool{}
	}
	for _, pod := range req.GetPods() {
		t.sandboxes = append(t.sandboxes, s.sandboxOf(pod))
	}
	for _, c := range req.GetContainers() {
		if c.GetState() == api.ContainerState_CONTAINER_RUNNING ||
			c.GetState() == api.ContainerState_CONTAINER_PAUSED {
			t.running[c.GetPodSandboxId()] = true
		}
	}
}
