package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

// The reason of Events about the Node. What is above it stands in docs/signals.md.
const (
	// on the Node: another writer takes the entry out of the chain again and again
	chainConflict = "SidecarChainConflict"
)

// steady is what a node is shown to be in while another writer goes on: not ready, until our work
// has stood for a while.
func (d *daemon) steady(now reconcile.State) reconcile.State {
	if d.contested && now.Why == reconcile.Effective && !d.stands(now) {
		return d.last
	}
	d.contested = false
	return now
}

// stands reports whether our work has outlived the time in which a network that starts, or another
// agent, writes its file again. A file of our own beside the network's is in nobody's way.
func (d *daemon) stands(now reconcile.State) bool {
	return now.Way != chain.Inline && now.Way != chain.Owned ||
		time.Since(d.since) >= reconcile.RetryNowAfter
}

// checkConflict looks whether somebody has taken out what the last pass put in. The first time it
// is mended at once: it may be a network plugin that was updated. One that goes on is left alone
// for longer and longer.
func (d *daemon) checkConflict(ctx context.Context) time.Duration {
	if d.placed.Why != reconcile.Effective {
		return 0
	}
	found := d.reconciler.Look(ctx)
	// Where the runtime loads another file than before, nobody has undone our work.
	if !found.ByAnother() || found.File != d.placed.File {
		return 0
	}
	d.placed = found
	d.metrics.conflicts.WithLabelValues(found.File).Inc()
	pause := d.conflict.Undone(found.File, time.Now())
	conf := d.reconciler.Known().Where.Conf
	path := filepath.Join(conf.Path, found.File)
	d.log.Warn("lost place in chain", zap.String("path", path),
		zap.String("reason", string(found.Why)), zap.Duration("pause", pause))
	if d.conflict.Lasting() {
		d.events.Warn(d.reference(), chainConflict, fmt.Sprintf("%s: %s; another writer "+
			"does this again and again; %s", path, found.Text, reconcile.Remedy(conf, found.File)))
	}
	if pause == 0 {
		return 0
	}
	d.contested = true
	d.metrics.show(found)
	d.publish(ctx, found)
	return pause
}
