package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/plugin/netconf"
	"github.com/sidecar-cni/sidecar-cni/plugin/record"
)

// hostProc shows the host's processes: the pod of the installer shares their namespace, if repair
// is on.
const hostProc = "/proc"

func (d *daemon) newRepairer() *repair.Repairer {
	entry, _ := d.entry(d.place, cmp.Or(d.probed.backend, netconf.NFTables)) // it was looked at before
	config := repair.Config{
		Mode:     repair.Mode(d.settings.repair),
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
		Backend:      d.usedBackend,
		Hold:         func() bool { return d.status.now.Load().reason == reason(chain.OtherMesh) },
		NetworkFirst: d.networkFirst.Load,
		Pods:         d.pods.List, Handler: d.classes.Handler, Client: d.client, Events: d.events, Registry: d.registry, Log: d.log,
	})
}

// usedBackend is what programs the node's rules; a node that has none at the start may get one.
func (d *daemon) usedBackend() string {
	backend, _ := d.inUse.Load().(string)
	return backend
}

// Pods that could not be looked at are looked at again after firstLook, then after twice as long,
// and so on: after a reboot many come back together, and not all of them before the agent.
const firstLook = time.Second

// lookSoon asks for a look at the pods; one that is asked for already is enough.
func (d *daemon) lookSoon() {
	select {
	case d.look <- struct{}{}:
	default:
	}
}

// lookAfterPods looks at the running pods: when the agent starts, when the chain has come into
// effect, after an outage of the API server, when it is asked to, and every now and then. In mode
// off only records of pods that are gone are dropped.
func (d *daemon) lookAfterPods(ctx context.Context) {
	if d.pods.WaitForSync(ctx) != nil {
		return
	}
	pause := firstLook
	for {
		again, err := d.lookOnce(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.Warn("pods not checked", zap.Error(err))
		}
		wait := d.repairEvery
		if again {
			wait = min(pause, wait)
			pause = min(2*pause, d.repairEvery)
		} else {
			pause = firstLook
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.look:
			timer.Stop()
			pause = firstLook
		case <-timer.C:
		}
	}
}

// lookOnce does not evict while the chain is not in effect: what is created anew would be no
// better. It reports whether some pods are unsettled.
func (d *daemon) lookOnce(ctx context.Context) (bool, error) {
	if d.settings.repair == string(repair.Evict) && !d.status.now.Load().ready() {
		return false, nil
	}
	summary, err := d.repairer.Pass(ctx)
	return unsettled(summary.Results), err
}

// unsettled reports whether some pods are starting, or were not found: after a reboot a pod has its
// old address until the kubelet reports, and no process until its network is set up, which may be
// by the chain of before our entry.
func unsettled(results []repair.Result) bool {
	return slices.ContainsFunc(results, func(x repair.Result) bool {
		return x.Finding == repair.Starting || x.Finding == repair.Unreachable
	})
}
