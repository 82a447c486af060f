package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/plugin/netconf"
)

const (
	askTimeout = 3 * time.Second // of a question about the node
	// A pass that changed nothing is made again so often even if nothing seems to have happened: a
	// token is to be renewed, an event may have been lost.
	passEvery = 30 * time.Second
	// The runtime loads a changed file within milliseconds; it is asked again when it may have.
	loadPause   = time.Second
	reportEvery = 5 * time.Minute
)

// daemon is what runs on a node all the time.
type daemon struct {
	*installer
	client   *rest.RESTClient
	object   *nodestatus.Node
	pods     *agent.Pods
	classes  *agent.Classes
	events   *agent.Events
	server   *agent.Server
	repairer *repair.Repairer
	metrics  *metrics
	registry *prometheus.Registry
	status   *status

	inUse        atomic.Value // string: what programs the node's rules, "" as long as nothing can
	networkFirst atomic.Bool  // whether the runtime sets up a sandbox's network before it starts anything in it

	conflict     writerConflict
	placed       state              // what the last pass came to, or what another writer has made of it since
	since        time.Time          // when our work was put where it stands
	contested    bool               // it was undone again, and has not stood for a while since
	last         state              // what is published
	passed       time.Time          // when the last pass ended
	lastReported time.Time          // when the state was written to the Node object; zero if it is still to be
	look         chan struct{}      // asks for a look at the pods
	asked        chan chan struct{} // asks for a pass; the channel in it is closed when that is over
}

// daemon does it all until ctx ends, and leaves the node as it is.
func (s *settings) daemon(ctx context.Context, log *zap.Logger, level zap.AtomicLevel) error {
	klog.SetLogger(logr.Discard()) // what client-go would log is in errors
	d, err := s.assemble(ctx, log)
	if err != nil {
		return err
	}
	defer func() {
		if d.member != nil {
			d.member.Leave()
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	log.Info("started agent", zap.String("node", s.nodeName), zap.String("platform", d.platform.Name), zap.String("why", d.why),
		zap.String("path", d.conf.Path), zap.String("backend", d.probed.backend), zap.String("version", version()))
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { d.pods.Run(ctx); return nil })
	all.Go(func() error { d.classes.Run(ctx); return nil })
	all.Go(func() error { d.events.Run(ctx); return nil })
	all.Go(func() error { return d.answer(ctx) })
	all.Go(func() error { return serve(ctx, listener, d.status.pages(d.registry, level)) })
	all.Go(func() error { return d.reconcileLoop(ctx) })
	all.Go(func() error { d.lookAfterPods(ctx); return nil })
	err = all.Wait()
	log.Info("stopped agent", zap.Error(err))
	return err
}

// answer serves the plugin. During an update it takes the socket over from an agent that knows the
// node's pods, so it first has a while to learn them.
func (d *daemon) answer(ctx context.Context) error {
	learning, cancel := context.WithTimeout(ctx, askTimeout)
	_ = d.pods.WaitForSync(learning) // without them each question is passed on to the API server
	cancel()
	for d.awaitTurn(ctx) {
		socket, err := agent.Listen(d.socketPath())
		if err != nil {
			return err
		}
		d.status.serving.Store(true)
		serving, end := context.WithCancel(ctx)
		go d.guardSocket(serving, socket, end)
		err = d.server.Serve(serving, socket)
		end()
		d.status.serving.Store(false)
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitTurn waits until the socket is ours to take, and reports false when ctx ends before.
func (d *daemon) awaitTurn(ctx context.Context) bool {
	ticker := time.NewTicker(loadPause)
	defer ticker.Stop()
	for ctx.Err() == nil && !d.serves() {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return ctx.Err() == nil
}

// serves reports whether the socket is this agent's to take: it is in charge, or nobody else
// answers. Who is in charge does not depend on the node's state: where there is no network, say, no
// agent is effective, and two would take the socket from each other.
func (d *daemon) serves() bool {
	if d.leads.Load() && !d.newer.Load() {
		return true
	}
	conn, err := net.DialTimeout("unix", d.socketPath(), askTimeout) //nolint:noctx // the socket is on this node
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// guardSocket ends the serving of a socket that nobody reaches any more, if it is this agent's to
// take again: a newer one may have ended in the middle of an update and left its own socket, or
// none.
func (d *daemon) guardSocket(ctx context.Context, socket *agent.Socket, end func()) {
	ticker := time.NewTicker(loadPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if !socket.Lost() {
				continue
			}
			d.passNow(ctx) // who is in charge may have changed
			if ctx.Err() == nil && d.serves() {
				d.log.Warn("lost socket", zap.String("path", d.socketPath()))
				end()
				return
			}
		}
	}
}

// passNow has a pass made, and waits for it.
func (d *daemon) passNow(ctx context.Context) {
	made := make(chan struct{})
	select {
	case <-ctx.Done():
		return
	case d.asked <- made:
	}
	select {
	case <-ctx.Done():
	case <-made:
	}
}

// assemble makes the parts. What needs the API server goes on without it, and asks again later.
func (s *settings) assemble(ctx context.Context, log *zap.Logger) (*daemon, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	client, err := agent.NewClient(config)
	if err != nil {
		return nil, err
	}
	d := &daemon{client: client, object: nodestatus.New(client, s.nodeName), registry: prometheus.NewRegistry(), look: make(chan struct{}, 1), asked: make(chan chan struct{})}
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	object, err := d.object.Info(asking)
	cancel()
	if err != nil {
		log.Warn("node object not read", zap.Error(err))
		object = nil
	}
	if d.installer, err = s.installer(ctx, object, client, log); err != nil {
		return nil, err
	}
	d.metrics = newMetrics(d.registry)
	d.shareFindings()
	d.join = d.run.Join
	d.pods = agent.NewPods(client, s.nodeName, d.registry, log)
	d.events = agent.NewEvents(client, s.nodeName, d.registry, log)
	if d.classes, err = agent.NewClasses(config, log); err != nil {
		return nil, err
	}
	d.server = agent.NewServer(agent.Known{Pods: d.pods, Handler: d.classes.Handler}, d.events, d.registry, log)
	d.repairer = d.newRepairer()
	d.last = state{reason: starting, text: "no pass has ended yet"}
	d.status = &status{synced: d.pods.Synced}
	d.status.set(d.last)
	d.status.beat.Store(time.Now().Unix())
	return d, nil
}

// installer makes the part that passes need. A wrong setting is an error at once; what the node
// lacks is said in its state.
func (s *settings) installer(ctx context.Context, object *corev1.Node, client *rest.RESTClient, log *zap.Logger) (*installer, error) {
	i := &installer{
		settings: *s, place: s.place(object), run: node.RunDir{Path: s.runDir}, object: nodestatus.New(client, s.nodeName).Info, owed: true, log: log,
	}
	if s.podName != "" {
		i.created = ownPod{client, s.namespace, s.podName, s.podUID}.created
	}
	i.provide()
	if looks, why := i.looksLike(object); looks != "" {
		log.Warn("node looks like another platform", zap.String("platform", i.platform.Name), zap.String("want", looks), zap.String("why", why))
	}
	if runtime, err := i.ask(ctx); err == nil {
		i.runtime = runtime
	} else {
		log.Warn("container runtime not reached", zap.Strings("paths", i.sockets), zap.Error(err))
	}
	var err error
	if i.access, err = s.access(client, filepath.Join(i.credentials.Dir, "token")); err != nil {
		return nil, err
	}
	if i.probed, err = s.probe(ctx); err != nil {
		log.Error("found no backend", zap.Error(err))
	}
	for _, warning := range i.probed.warnings {
		log.Warn("backend cannot redirect every pod", zap.String("backend", i.probed.backend), zap.String("reason", warning))
	}
	_, err = s.entry(i.place, cmp.Or(i.probed.backend, netconf.NFTables))
	return i, err
}

// reconcileLoop makes a pass whenever something has changed that matters, until ctx ends. A
// directory that was deleted on the node and made again is seen by a new mount only: the kubelet
// gives the container one when it starts it anew.
func (d *daemon) reconcileLoop(ctx context.Context) error {
	changes, err := node.Watch(ctx, d.watched(), d.log)
	if err != nil {
		return err
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		forced, made := true, func() {}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			forced = false
		case <-due.C:
		case asked := <-d.asked:
			made = func() { close(asked) }
		case <-again:
			d.lookSoon()
		case <-d.pods.Regained():
			d.lookSoon()
			forced = false
		}
		d.status.beat.Store(time.Now().Unix())
		if forced || d.concerned() {
			due.Reset(d.reconcile(ctx))
		}
		made()
		if d.last.reason == badMount {
			return fmt.Errorf("%s: %s", d.last.reason, d.last.text)
		}
	}
}

// watched are the directories that matter, and the file of the token.
func (d *daemon) watched() []string {
	paths := []string{d.conf.Path, d.credentials.Dir, filepath.Dir(d.binary), d.run.Path, d.multus.Path, filepath.Dir(d.caFile)}
	if path := d.tokenPath(); path != "" {
		paths = append(paths, filepath.Dir(path))
	}
	return paths
}

// concerned reports whether there is anything new since the last pass, our own changes aside.
func (d *daemon) concerned() bool {
	if time.Now().Before(d.conflict.until) {
		return false
	}
	now, err := d.fingerprint()
	return err != nil || now != d.seen || time.Since(d.passed) >= passEvery
}

// shareFindings gives those who run beside the passes what is known of the node.
func (d *daemon) shareFindings() {
	d.metrics.probed(d.probed)
	d.inUse.Store(d.probed.backend)
	d.networkFirst.Store(d.runtime.Name == "containerd" || d.runtime.Name == "cri-o")
}

// reconcile makes a pass, unless another writer has just undone the last one again, and says when
// the next is due.
func (d *daemon) reconcile(ctx context.Context) time.Duration {
	if pause := d.checkConflict(ctx); pause > 0 {
		return pause
	}
	now, changes := d.pass(ctx)
	if now.reason == effective && d.placed.reason != effective {
		d.since = time.Now()
	}
	d.placed = now
	d.shareFindings()
	d.passed = time.Now()
	now = d.steady(now)
	d.metrics.passed(now, len(changes) > 0)
	d.metrics.expires(d.credentials)
	d.publish(ctx, now)
	switch {
	case now.reason == notLoaded:
		return loadPause
	case !now.ready() || d.lastReported.IsZero():
		return passEvery / 3
	}
	return passEvery
}
