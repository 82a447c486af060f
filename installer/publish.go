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

// become tells everybody what the state is now.
func (d *daemon) become(ctx context.Context, now state) {
	changed := now != d.last
	if changed {
		tell := d.log.Warn
		if now.ready() {
			tell = d.log.Info
		}
		tell("evaluated node", zap.String("outcome", string(now.reason)), zap.String("way", string(now.way)), zap.String("reason", now.text))
		d.told = time.Time{}
		if now.ready() {
			d.lookSoon() // what started meanwhile may be open
		}
	}
	d.last = now
	d.status.become(now)
	// A Node object may be made anew under a running agent, with the taint.
	again := d.untaint && now.ready() && time.Since(d.told) > tellEvery
	if now.reason == superseded || !d.told.IsZero() && !again || now.reason == effective && !d.stands(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := d.tell(ctx, now); err != nil {
		d.log.Warn("node object not updated", zap.Error(err))
		return
	}
	d.told = time.Now()
}

// tell writes what is wished into the Node object.
func (d *daemon) tell(ctx context.Context, now state) error {
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
