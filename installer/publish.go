package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

// publish reports the state: in the log, on the pages, and in the Node object.
func (d *daemon) publish(ctx context.Context, now reconcile.State) {
	changed := now != d.last
	if changed {
		log := d.log.Warn
		if now.Ready() {
			log = d.log.Info
		}
		log("evaluated node", zap.String("outcome", string(now.Why)),
			zap.String("way", string(now.Way)), zap.String("reason", now.Text))
		d.lastReported = time.Time{}
		if now.Ready() {
			d.repairer.Soon() // what started meanwhile may be open
		}
	}
	d.last = now
	d.shown.Set(now)
	// A Node object may be made anew under a running agent, with the taint.
	again := d.report.untaint && now.Ready() && time.Since(d.lastReported) > reportEvery
	if now.Why == reconcile.Superseded || !d.lastReported.IsZero() && !again ||
		now.Why == reconcile.Effective && !d.stands(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := d.updateNode(ctx, now); err != nil {
		d.log.Warn("node object not updated", zap.Error(err))
		return
	}
	d.lastReported = time.Now()
}

// updateNode writes the state into the Node object, as far as the settings ask for it.
func (d *daemon) updateNode(ctx context.Context, now reconcile.State) error {
	var errs []error
	if d.report.untaint && now.Ready() {
		removed, err := d.object.RemoveTaint(ctx)
		if removed {
			d.log.Info("removed taint", zap.String("node", d.nodeName),
				zap.String("taint", nodestatus.Taint))
		}
		errs = append(errs, err)
	}
	if d.report.condition {
		_, err := d.object.Report(ctx,
			nodestatus.Condition{Ready: now.Ready(), Reason: now.Why.Camel(), Message: now.Text})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reference names the Node object as the kubelet does in its Events.
func (d *daemon) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: d.nodeName,
		UID: types.UID(d.nodeName)}
}
