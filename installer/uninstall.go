package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/installer/access"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/pages"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
)

// againPause is between two tries, and two looks for what has come back.
const againPause = 10 * time.Second

// uninstall takes the node out. If it shall stay, it tries until it has, and then waits to be
// ended.
func (s *settings) uninstall(ctx context.Context, stderr io.Writer) error {
	log, level := loglevel.New(s.agent.logLevel, stderr)
	u := &uninstallation{of: s, log: log}
	if !s.stay {
		return u.once(ctx).Err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.agent.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	shown, registry := pages.New(nil, nil), prometheus.NewRegistry()
	counted := newMetrics(registry)
	shown.Set(reconcile.State{Why: reconcile.Starting, Text: "the node is being taken out"})
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		return shown.Serve(ctx, listener, pages.Sources{Metrics: registry, Level: level})
	})
	all.Go(func() error {
		return u.again(ctx, func(now reconcile.State) {
			shown.Beat(time.Now())
			shown.Set(now)
			counted.show(now)
		})
	})
	return all.Wait()
}

// uninstallation is what a program that takes a node out has done so far.
type uninstallation struct {
	of        *settings
	log       *zap.Logger
	retracted bool // nothing is left of what was reported to the API server
}

// again takes the node out, looks again for what has come back, and reports each time what came of
// it. It ends where only a new mount helps.
func (u *uninstallation) again(ctx context.Context, report func(reconcile.State)) error {
	ticker := time.NewTicker(againPause)
	defer ticker.Stop()
	for {
		now := u.once(ctx).Now
		report(now)
		if now.Why == reconcile.BadMount {
			return fmt.Errorf("%s: %s", now.Why, now.Text)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// once makes a pass, and removes what the agent has reported unless that is done. All of it is done
// under the lock: an agent that may take the node in again does so before or after.
func (u *uninstallation) once(ctx context.Context) reconcile.Outcome {
	sources := reconcile.Sources{Account: access.AccountUID}
	client, err := access.Client(u.of.api)
	if err == nil && u.of.agent.node != "" {
		sources.Node = nodestatus.New(client, u.of.agent.node).Info
	}
	if !u.retracted {
		sources.Retract = func(ctx context.Context) []string {
			left := u.of.retract(ctx, u.log)
			u.retracted = len(left) == 0
			return left
		}
	}
	return reconcile.New(u.of.node, sources, u.log).Pass(ctx, reconcile.Out)
}

// retract removes what the agent has reported about its node and its pods: nobody keeps it up to
// date from now on. It returns what had to stay.
func (s *settings) retract(ctx context.Context, log *zap.Logger) (left []string) {
	if s.agent.node == "" || !s.report.condition && !s.pods.label {
		return nil
	}
	client, err := access.Client(s.api)
	if err != nil {
		return []string{fmt.Sprintf("condition and labels: %v", err)}
	}
	var condition bool
	var pods int
	var errs [2]error
	if s.report.condition {
		condition, errs[0] = nodestatus.New(client, s.agent.node).Withdraw(ctx)
	}
	if s.pods.label {
		pods, errs[1] = repair.Unlabel(ctx, client, s.agent.node)
	}
	for _, err := range errs {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	if condition || pods > 0 || len(left) > 0 {
		log.Info("removed condition and labels", zap.Bool("condition", condition),
			zap.Int("pods", pods), zap.Strings("left", left))
	}
	return left
}
