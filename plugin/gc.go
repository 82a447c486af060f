package main

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
)

// gc drops the records of this network's attachments that are no more. Without a list of those that
// are, it drops none.
func gc(_ context.Context, c *call) error {
	c.outcome.message, c.outcome.word = "collected records", "collected"
	if !c.Listed {
		c.outcome.reason = "no_list"
		return nil
	}
	all, err := c.records().List()
	errs := []error{err}
	for _, r := range all {
		if r.Network != c.Network || slices.Contains(c.Attachments, r.Attachment) {
			continue
		}
		c.claim()
		_, err := c.records().Delete(r.Attachment)
		errs = append(errs, err)
		c.log.Debug("dropped record", zap.String("container", r.Container), zap.String("interface", r.Interface), zap.Error(err))
	}
	if err := errors.Join(errs...); err != nil {
		return badState.fail("collect records of network %q: %w", c.Network, err)
	}
	return nil
}
