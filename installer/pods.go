package main

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/plugin/netconf"
	"github.com/sidecar-cni/sidecar-cni/plugin/record"
)

// hostProc shows the host's processes: the pod of the installer shares their namespace, if repair is wished.
const hostProc = "/proc"

func (d *daemon) newRepairer() *repair.Repairer {
	entry, _ := d.entry(d.place, cmp.Or(d.probed.backend, netconf.NFTables)) // it was looked at before
	config := repair.Config{
		Mode:     repair.Mode(d.settings.repair),
		Backend:  d.probed.backend,
		Redirect: netconf.Parse(entry).Redirect,
		Records:  record.Dir(d.recordDir()),
		HostProc: hostProc,
	}
	if d.label {
		config.Label = repair.Label
	}
	if d.hostRoot != "" {
		config.InRoot = func(do func() error) error { return node.InRoot(d.hostRoot, do) }
	}
	return repair.New(config, repair.Deps{
		Pods: d.pods.List, Handler: d.classes.Handler, Client: d.client, Events: d.events, Registry: d.registry, Log: d.log,
	})
}

// lookSoon asks for a look at the pods; one that is asked for already is enough.
func (d *daemon) lookSoon() {
	select {
	case d.look <- struct{}{}:
	default:
	}
}

// lookAfterPods looks at the running pods: when the agent starts, when the chain has come into effect, after an outage of the
// API server, when it is asked to, and every now and then. In mode off only records of pods that are gone are dropped.
func (d *daemon) lookAfterPods(ctx context.Context) {
	if d.pods.WaitForSync(ctx) != nil {
		return
	}
	for {
		if err := d.lookOnce(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("looked after pods in vain", zap.Error(err))
		}
		timer := time.NewTimer(d.repairEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.look:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// lookOnce does not evict while the chain is not in effect: what is created anew would be no better.
func (d *daemon) lookOnce(ctx context.Context) error {
	if d.settings.repair == string(repair.Evict) && !d.status.now.Load().ready() {
		return nil
	}
	_, err := d.repairer.Pass(ctx)
	return err
}
