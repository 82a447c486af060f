package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/access"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

// single makes one pass. Its error says why the chain is not effective.
func (s *settings) single(ctx context.Context, log *zap.Logger) error {
	client, err := s.api.Client()
	if err != nil {
		return err
	}
	r, err := s.newReconciler(client, log)
	if err != nil {
		return err
	}
	if err := r.Start(ctx, false); err != nil {
		return err
	}
	for end := time.Now().Add(reconcile.ReloadTimeout); ; {
		now := r.Pass(ctx, reconcile.In).Now
		switch {
		case now.Ready():
			return nil
		case now.Why != reconcile.NotLoaded || time.Now().After(end) || ctx.Err() != nil:
			return fmt.Errorf("%s: %s", now.Why, now.Text)
		}
		time.Sleep(reconcile.ReloadPause) // the runtime needs a moment to load what was written
	}
}

// preview prints what a pass would change.
func (s *settings) preview(ctx context.Context, out io.Writer, log *zap.Logger) error {
	pass := reconcile.New(s.node, reconcile.Sources{Account: access.AccountUID}, log).Pass(ctx, reconcile.Preview)
	return pass.Print(out)
}
