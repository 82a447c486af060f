package main

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
)

// gc drops the records of this network's attachments that are no more. Without a list of those that
// are, it drops none.
func gc(_ context.Context, c call, d deps) (o outcome, err error) {
	o.message, o.word = "collected records", "collected"
	if !c.conf.Listed {
		o.reason = "no_list"
		return o, nil
	}
	all, err := d.records.List()
	errs := []error{err}
	for _, r := range all {
		if r.Network != c.conf.Network || slices.Contains(c.conf.Attachments, r.Attachment) {
			continue
		}
		o.ours = true
		_, err := d.records.Delete(r.Attachment)
		errs = append(errs, err)
		d.logOurs.Debug("dropped record", zap.String("container", r.Container),
			zap.String("interface", r.Interface), zap.Error(err))
	}
	if err := errors.Join(errs...); err != nil {
		return o, badState.fail("collect records of network %q: %w", c.conf.Network, err)
	}
	return o, nil
}
