package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/access"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

const (
	requestTimeout = 3 * time.Second // for one request to the API server
	// A pass that changed nothing is made again so often even if nothing seems to have happened: a
	// token is to be renewed, an event may have been lost.
	passEvery = 30 * time.Second
	// loadPause is between two looks whether somebody else has done his part: the runtime loads a
	// changed file within milliseconds.
	loadPause   = time.Second
	reportEvery = 5 * time.Minute
)

// daemon is what runs on a node all the time.
type daemon struct {
	nodeName string
	report   reportSettings
	log      *zap.Logger

	reconciler *reconcile.Reconciler // of reconcileLoop alone
	client     *rest.RESTClient
	object     *nodestatus.Node
	pods       *agent.Pods
	classes    *agent.Classes
	events     *agent.Events
	shared     *agent.Shared
	repairer   *repair.Repairer
	guard      *guard.Guard
	metrics    *nodeMetrics
	registry   *prometheus.Registry
	shown      *pages
	seen       atomic.Pointer[view]

	conflict reconcile.Conflict
	// what the last pass came to, or what another writer has made of it since
	placed    reconcile.State
	since     time.Time       // when our work was put where it stands
	contested bool            // it was undone again, and has not stood for a while since
	last      reconcile.State // what is published
	passed    time.Time       // when the last pass ended
	// when the state was written to the Node object; zero if it is still to be
	lastReported time.Time
	// asks for a pass; the channel in it is closed when that is over
	asked chan chan struct{}
}

// view is what those need to know of the node who run beside the passes.
type view struct {
	leads        bool   // this agent has taken charge of the node, and no newer one since
	backend      string // what programs the node's rules, "" as long as nothing can
	networkFirst bool   // the runtime sets up a sandbox's network before it starts anything in it
}

// runDaemon does it all until ctx ends, and leaves the node as it is.
func (s *settings) runDaemon(ctx context.Context, log *zap.Logger, level zap.AtomicLevel) error {
	klog.SetLogger(logr.Discard()) // what client-go would log is in errors
	logrus.SetOutput(io.Discard)   // and what NRI's transport would
	d, err := s.assemble(ctx, log)
	if err != nil {
		return err
	}
	defer d.reconciler.End()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.agent.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	where := d.reconciler.Known().Where
	log.Info("started agent", zap.String("node", d.nodeName),
		zap.String("platform", where.Platform.Name), zap.String("why", where.Evidence),
		zap.String("path", where.Conf.Path), zap.String("backend", d.seen.Load().backend),
		zap.String("version", version()))
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { d.pods.Run(ctx); return nil })
	all.Go(func() error { d.classes.Run(ctx); return nil })
	all.Go(func() error { d.events.Run(ctx); return nil })
	all.Go(func() error { return d.shared.Run(ctx) })
	all.Go(func() error { return serve(ctx, listener, d.shown.handler(d.registry, level)) })
	all.Go(func() error { return d.reconcileLoop(ctx) })
	all.Go(func() error { d.repairer.Run(ctx, d.pods.WaitForSync, s.pods.every); return nil })
	all.Go(func() error { d.guard.Run(ctx, d.known); return nil })
	err = all.Wait()
	log.Info("stopped agent", zap.Error(err))
	return err
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
	config, err := s.api.Config()
	if err != nil {
		return nil, err
	}
	client, err := agent.NewClient(config)
	if err != nil {
		return nil, err
	}
	d := &daemon{
		nodeName: s.agent.node, report: s.report, log: log,
		client: client, object: nodestatus.New(client, s.agent.node),
		registry: prometheus.NewRegistry(),
		asked:    make(chan chan struct{}),
	}
	d.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if d.reconciler, err = s.newReconciler(client, log); err != nil {
		return nil, err
	}
	if err := d.reconciler.Start(ctx, true); err != nil {
		return nil, err
	}
	d.metrics = newMetrics(d.registry)
	d.share()
	d.pods = agent.NewPods(client, d.nodeName, d.registry, log)
	d.events = agent.NewEvents(client, d.nodeName, d.registry, log)
	if d.classes, err = agent.NewClasses(config, log); err != nil {
		return nil, err
	}
	d.shared = &agent.Shared{
		Server: agent.NewServer(agent.Known{Pods: d.pods, Handler: d.classes.Handler}, d.events,
			d.registry, log),
		Path: s.node.Dirs.Socket(), Pods: d.pods, Leads: func() bool { return d.seen.Load().leads },
		Refresh: d.passNow, Log: log,
	}
	_, d.last = reconcile.Decide(s.node, reconcile.Observation{})
	d.shown = &pages{synced: d.pods.Synced, serving: d.shared.Serving}
	d.shown.set(d.last)
	d.shown.beat.Store(time.Now().Unix())
	return d, d.watchPods(s)
}

// hostProc shows the host's processes: the pod of the installer shares their namespace, if repair
// is on.
const hostProc = "/proc"

// watchPods makes the parts that look into pods' namespaces: when they start, and while they run.
func (d *daemon) watchPods(s *settings) error {
	entry, err := d.reconciler.Entry()
	if err != nil {
		return err
	}
	repairs := repair.Config{
		Mode:     repair.Mode(s.pods.mode),
		Redirect: netconf.Parse(entry).Redirect,
		Records:  record.Dir(s.node.Dirs.Records()),
		HostProc: hostProc,
	}
	if s.pods.label {
		repairs.Label = repair.Label
	}
	if root := s.node.Plugin.HostRoot; root != "" {
		repairs.InRoot = func(do func() error) error { return node.InRoot(root, do) }
	}
	backend := func() string { return d.seen.Load().backend }
	locks := &podns.Locks{}
	d.repairer = repair.New(repairs, repair.Deps{
		Backend: backend, Locks: locks,
		Hold: func() bool {
			return d.shown.now.Load().Why == reconcile.Reason(chain.OtherMesh)
		},
		Ready:        func() bool { return d.shown.now.Load().Ready() },
		NetworkFirst: func() bool { return d.seen.Load().networkFirst },
		Pods:         d.pods.List, Handler: d.classes.Handler, Client: d.client, Events: d.events,
		Registry: d.registry, Log: d.log,
	})
	guards := guard.Config{
		Mode: guard.Mode(s.guard.mode), Socket: s.guard.socket, Redirect: repairs.Redirect,
		Records: repairs.Records, HostProc: repairs.HostProc, InRoot: repairs.InRoot,
	}
	if repairs.Mode == repair.Off {
		guards.Mode = guard.Off
	}
	d.guard = guard.New(guards, guard.Deps{
		Find: d.pods.Find, Handler: d.classes.Handler, Backend: backend, Locks: locks,
		InCharge: d.inCharge, Repair: d.repairer.Soon,
		Events: d.events, Registry: d.registry, Log: d.log,
	})
	return nil
}

// inCharge reports whether this agent decides about sandboxes: it has not been taken out, no newer
// one is in its place, and no other mesh's plugin is in the chain. As long as nothing is known of
// that, it does.
func (d *daemon) inCharge() bool {
	switch d.shown.now.Load().Why {
	case reconcile.Uninstalled, reconcile.Superseded, reconcile.Reason(chain.OtherMesh):
		return false
	}
	return true
}

// known waits until the node's pods are known, and whether this agent is in charge.
func (d *daemon) known(ctx context.Context) error {
	if err := d.pods.WaitForSync(ctx); err != nil {
		return err
	}
	for d.shown.now.Load().Why == reconcile.Starting {
		d.passNow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// newReconciler makes the part that makes passes.
func (s *settings) newReconciler(client *rest.RESTClient,
	log *zap.Logger) (*reconcile.Reconciler, error) {
	cfg := s.node
	cfg.Plugin.APIServer = cmp.Or(cfg.Plugin.APIServer, s.api.InCluster)
	if cfg.Plugin.APIServer == "" {
		return nil, errors.New(
			"--api-server: not set, and KUBERNETES_SERVICE_HOST and _PORT are not in the " +
				"environment")
	}
	sources := reconcile.Sources{
		Node:    nodestatus.New(client, s.agent.node).Info,
		Account: access.AccountUID,
		Token:   s.token.Source(client, cfg.Namespace), TokenFile: s.token.Path(),
	}
	if s.agent.pod != "" {
		sources.Created = access.OwnPod{Client: client, Namespace: cfg.Namespace, Name: s.agent.pod,
			UID: cfg.PodUID}.Created
	}
	return reconcile.New(cfg, sources, log), nil
}

// reconcileLoop makes a pass whenever something has changed that matters, until ctx ends. A
// directory that was deleted on the node and made again is seen by a new mount only: the kubelet
// gives the container one when it starts it anew.
func (d *daemon) reconcileLoop(ctx context.Context) error {
	changes, err := node.Watch(ctx, d.reconciler.Watched(), d.log)
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
			d.repairer.Soon()
		case <-d.pods.Regained():
			d.repairer.Soon()
			forced = false
		}
		d.shown.beat.Store(time.Now().Unix())
		if forced || d.concerned() {
			due.Reset(d.reconcile(ctx))
		}
		made()
		if d.last.Why == reconcile.BadMount {
			return fmt.Errorf("%s: %s", d.last.Why, d.last.Text)
		}
	}
}

// concerned reports whether there is anything new since the last pass, our own changes aside.
func (d *daemon) concerned() bool {
	return !d.conflict.Pausing(time.Now()) &&
		(d.reconciler.Changed() || time.Since(d.passed) >= passEvery)
}

// share has those who run beside the passes know what is known of the node.
func (d *daemon) share() {
	known := d.reconciler.Known()
	d.metrics.probed(known.Probed)
	d.seen.Store(&view{
		leads: d.reconciler.Leads(), backend: known.Probed.Backend,
		networkFirst: known.Runtime.Name == "containerd" || known.Runtime.Name == "cri-o",
	})
}

// reconcile makes a pass, unless another writer has just undone the last one again, and says when
// the next is due.
func (d *daemon) reconcile(ctx context.Context) time.Duration {
	if pause := d.checkConflict(ctx); pause > 0 {
		return pause
	}
	pass := d.reconciler.Pass(ctx, reconcile.In)
	now := pass.Now
	if now.Why == reconcile.Effective && d.placed.Why != reconcile.Effective {
		d.since = time.Now()
	}
	d.placed = now
	d.share()
	d.passed = time.Now()
	now = d.steady(now)
	d.metrics.passed(now, len(pass.Changes) > 0)
	d.metrics.expires(d.reconciler.Known().Where.Credentials)
	d.publish(ctx, now)
	switch {
	case now.Why == reconcile.NotLoaded:
		return loadPause
	case !now.Ready() || d.lastReported.IsZero():
		return passEvery / 3
	}
	return passEvery
}
