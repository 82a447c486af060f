package main

import (
	"context"
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
	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sidecar-cni/sidecar-cni/daemon/events"
	"github.com/sidecar-cni/sidecar-cni/daemon/program"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/pages"
	"github.com/sidecar-cni/sidecar-cni/installer/podfiles"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
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

	reconciler *reconcile.Reconciler // of reconcileLoop alone, but for Member
	client     *rest.RESTClient
	object     *nodestatus.Node
	pods       *agent.Pods
	classes    *agent.Classes
	files      *podfiles.Files
	events     *events.Events
	shared     *agent.Shared
	repairer   *repair.Repairer
	guard      *guard.Guard
	metrics    *nodeMetrics
	registry   *prometheus.Registry
	shown      *pages.Pages
	seen       atomic.Pointer[view]

	conflict reconcile.Conflict
	// what the last pass came to, or what another writer has made of it since
	placed       reconcile.State
	since        time.Time       // when our work was put where it stands
	contested    bool            // it was undone again, and has not stood for a while since
	last         reconcile.State // what is published
	passed       time.Time       // when the last pass ended
	lastReported time.Time       // when last was written to the Node object; zero: not yet
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
		zap.String("version", program.Version()))
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { d.pods.Run(ctx); return nil })
	all.Go(func() error { d.classes.Run(ctx); return nil })
	all.Go(func() error { d.files.Run(ctx); return nil })
	all.Go(func() error { d.events.Run(ctx); return nil })
	all.Go(func() error { return d.shared.Run(ctx) })
	all.Go(func() error {
		return d.shown.Serve(ctx, listener, pages.Sources{Metrics: d.registry, Level: level})
	})
	all.Go(func() error { return d.reconcileLoop(ctx) })
	all.Go(func() error { d.repairer.Run(ctx, d.guarded, s.pods.every); return nil })
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
		d.shown.Beat(time.Now())
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
