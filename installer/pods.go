package main

import (
	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
)

// hostProc shows the host's processes: the pod of the installer shares their namespace, if repair
// is on.
const hostProc = "/proc"

func (d *daemon) newRepairer(s *settings) (*repair.Repairer, error) {
	entry, err := d.reconciler.Entry()
	if err != nil {
		return nil, err
	}
	config := repair.Config{
		Mode:     repair.Mode(s.pods.mode),
		Redirect: netconf.Parse(entry).Redirect,
		Records:  record.Dir(s.node.Dirs.Records()),
		HostProc: hostProc,
	}
	if s.pods.label {
		config.Label = repair.Label
	}
	if root := s.node.Plugin.HostRoot; root != "" {
		config.InRoot = func(do func() error) error { return node.InRoot(root, do) }
	}
	return repair.New(config, repair.Deps{
		Backend:      func() string { return d.seen.Load().backend },
		Hold:         func() bool { return d.shown.now.Load().Why == reconcile.Reason(chain.OtherMesh) },
		Ready:        func() bool { return d.shown.now.Load().Ready() },
		NetworkFirst: func() bool { return d.seen.Load().networkFirst },
		Pods:         d.pods.List, Handler: d.classes.Handler, Client: d.client, Events: d.events, Registry: d.registry, Log: d.log,
	}), nil
}
