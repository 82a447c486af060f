package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
)

// publish reports the state: in the log, on the pages, and in the Node object.
func (d *daemon) publish(ctx context.Context, now state) {
	changed := now != d.last
	if changed {
		log := d.log.Warn
		if now.ready() {
			log = d.log.Info
		}
		log("evaluated node", zap.String("outcome", string(now.reason)), zap.String("way", string(now.way)), zap.String("reason", now.text))
		d.lastReported = time.Time{}
		if now.ready() {
			d.lookSoon() // what started meanwhile may be open
		}
	}
	d.last = now
	d.status.set(now)
	// A Node object may be made anew under a running agent, with the taint.
	again := d.untaint && now.ready() && time.Since(d.lastReported) > reportEvery
	if now.reason == superseded || !d.lastReported.IsZero() && !again || now.reason == effective && !d.stands(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := d.updateNode(ctx, now); err != nil {
		d.log.Warn("node object not updated", zap.Error(err))
		return
	}
	d.lastReported = time.Now()
}

// updateNode writes the state into the Node object, as far as the settings ask for it.
func (d *daemon) updateNode(ctx context.Context, now state) error {
	var errs []error
	if d.untaint && now.ready() {
		removed, err := d.object.RemoveTaint(ctx)
		if removed {
			d.log.Info("removed taint", zap.String("node", d.nodeName), zap.String("taint", nodestatus.Taint))
		}
		errs = append(errs, err)
	}
	if d.condition {
		_, err := d.object.Report(ctx, nodestatus.Condition{Ready: now.ready(), Reason: camel(now.reason), Message: now.text})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reference names the Node object as the kubelet does in its Events.
func (d *daemon) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: d.nodeName, UID: types.UID(d.nodeName)}
}
