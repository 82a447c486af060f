package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/access"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/guard"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/pages"
	"github.com/sidecar-cni/sidecar-cni/installer/podfiles"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/redirect/hostroot"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

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
	d.files = podfiles.New(podfiles.Deps{Run: s.node.Dirs.Run, Pods: d.pods, Classes: d.classes,
		Member: d.reconciler.Member, Registry: d.registry, Log: log})
	d.shared = &agent.Shared{
		Server: agent.NewServer(agent.Known{Pods: d.pods, Handler: d.classes.Handler}, d.events,
			d.registry, log),
		Path: s.node.Dirs.Socket(), Pods: d.pods, Leads: func() bool { return d.seen.Load().leads },
		Refresh: d.passNow, Log: log,
	}
	_, d.last = reconcile.Decide(s.node, reconcile.Observation{})
	d.shown = pages.New(d.pods.Synced, d.shared.Serving)
	d.shown.Set(d.last)
	return d, d.watchPods(s)
}

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
		HostProc: "/proc", // the installer's pod shares the host's processes, if repair is on
	}
	if s.pods.label {
		repairs.Label = repair.Label
	}
	if root := s.node.Plugin.HostRoot; root != "" {
		repairs.InRoot = func(do func() error) error { return hostroot.InRoot(root, do) }
	}
	backend := func() string { return d.seen.Load().backend }
	locks := &podns.Locks{}
	d.repairer = repair.New(repairs, repair.Deps{
		Backend: backend, Locks: locks,
		Hold:         func() bool { return d.shown.Now().Why == reconcile.Reason(chain.OtherMesh) },
		Ready:        func() bool { return d.shown.Now().Ready() },
		NetworkFirst: func() bool { return d.seen.Load().networkFirst },
		Pods:         d.pods.List, Handler: d.classes.Handler, Client: d.client, Events: d.events,
		Registry: d.registry, Log: d.log,
	})
	guards := guard.Config{
		Mode: guard.Mode(s.guard.mode), Socket: s.guard.socket, Redirect: repairs.Redirect,
		Records: repairs.Records, HostProc: repairs.HostProc, InRoot: repairs.InRoot,
		PodUID: s.node.PodUID,
	}
	if repairs.Mode == repair.Off && guards.Mode == guard.Refuse {
		return errors.New("--guard=refuse: with --repair=off no pod's network namespace is " +
			"entered: set --guard=off, or another --repair")
	}
	if repairs.Mode == repair.Off {
		guards.Mode = guard.Off
	}
	d.guard = guard.New(guards, guard.Deps{
		Find: d.pods.Find, Handler: d.classes.Handler, Backend: backend, Locks: locks,
		InCharge: func() bool { return d.shown.Now().InCharge() }, Repair: d.repairer.Soon,
		Events: d.events, Registry: d.registry, Log: d.log,
	})
	return nil
}

// guarded waits until the node's pods are known, and the guard has looked at them.
func (d *daemon) guarded(ctx context.Context) error {
	if err := d.pods.WaitForSync(ctx); err != nil {
		return err
	}
	d.guard.AwaitTried(ctx)
	return ctx.Err()
}

// known waits until the node's pods are known, and whether this agent is in charge.
func (d *daemon) known(ctx context.Context) error {
	if err := d.pods.WaitForSync(ctx); err != nil {
		return err
	}
	for d.shown.Now().Why == reconcile.Starting {
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
		return nil, errors.New("--api-server: not set, and KUBERNETES_SERVICE_HOST and _PORT are " +
			"not in the environment")
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
