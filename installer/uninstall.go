package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/nodestatus"
	"github.com/sidecar-cni/sidecar-cni/installer/repair"
)

// reloadBound is how long the runtime has to notice that its directory has changed.
const reloadBound = 10 * time.Second

// unaskedPause is for a runtime that cannot be asked: it follows its directory within milliseconds.
const unaskedPause = 2 * time.Second

// againPause is between two tries, and two looks for what has come back.
const againPause = 10 * time.Second

// uninstall takes the node out. If it shall stay, it tries until it has, and then waits to be ended.
func (c *command) uninstall(ctx context.Context, e env) error {
	level := c.level()
	log := newLogger(level, e.stderr)
	if !c.stay {
		if _, err := c.settings.uninstallOnce(ctx, log); err != nil {
			return err
		}
		c.settings.retract(ctx, log)
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	st, registry := &status{synced: func() bool { return true }}, prometheus.NewRegistry()
	shown := newMetrics(registry)
	st.become(state{reason: starting, text: "the node is being taken out"})
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return serve(ctx, listener, st.pages(registry, level)) })
	all.Go(func() error {
		c.settings.uninstallAgain(ctx, log, func(now state) {
			st.beat.Store(time.Now().Unix())
			st.become(now)
			shown.show(now)
		})
		return nil
	})
	return all.Wait()
}

// uninstallAgain takes the node out, looks again for what has come back, and tells each time what came of it. Once the marker
// was there and is gone, somebody wants the node to take part again: an agent of a later pod, or whoever removed it by hand.
func (s *settings) uninstallAgain(ctx context.Context, log *zap.Logger, tell func(state)) {
	ticker := time.NewTicker(againPause)
	defer ticker.Stop()
	marked, retracted := false, false
	for {
		_, there, err := node.RunDir{Path: s.runDir}.Marked()
		if marked && !there && err == nil {
			tell(state{reason: superseded, text: "the node takes part again: the marker of this uninstallation was removed"})
		} else {
			left, err := s.uninstallOnce(ctx, log)
			if err == nil && !retracted {
				kept := s.retract(ctx, log)
				left, retracted = append(left, kept...), len(kept) == 0
			}
			tell(afterUninstall(left, err))
			_, marked, _ = node.RunDir{Path: s.runDir}.Marked() // what cannot be read now is looked at again
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// afterUninstall is the state of a node that was taken out, or was not because of an error. left
// is what had to stay.
func afterUninstall(left []string, err error) state {
	switch {
	case err != nil:
		return state{reason: reasonOf(err), text: err.Error()}
	case len(left) > 0:
		return state{reason: uninstalled, text: "the node is out; left: " + strings.Join(left, "; "), out: true}
	}
	return state{reason: uninstalled, text: "the node is out", out: true}
}

// uninstallOnce first has the daemon learn that it has to stop; then the entry goes, then what the entry needed. Whatever was
// done already is not missed, so it can be run again after any interruption. It returns what it had to leave.
func (s *settings) uninstallOnce(ctx context.Context, log *zap.Logger) (left []string, err error) {
	i, err := s.uninstaller(ctx, log)
	if err != nil {
		return nil, err
	}
	unlock, err := i.run.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var changes []string
	left, err = i.takeOut(ctx, func(what string) { changes = append(changes, what) })
	if len(changes) > 0 || err != nil {
		log.Info("took node out", zap.Strings("changes", changes), zap.Strings("left", left), zap.Error(err))
	}
	return left, err
}

// retract takes back what the agent has told the API server about its node and its pods, which nobody keeps up to date from now
// on. It returns what had to stay.
func (s *settings) retract(ctx context.Context, log *zap.Logger) (left []string) {
	if s.nodeName == "" || !s.condition && !s.label {
		return nil
	}
	client, err := s.agentClient()
	if err != nil {
		return []string{fmt.Sprintf("condition and labels: %v", err)}
	}
	var condition bool
	var pods int
	var errs [2]error
	if s.condition {
		condition, errs[0] = nodestatus.New(client, s.nodeName).Withdraw(ctx)
	}
	if s.label {
		pods, errs[1] = repair.Unlabel(ctx, client, s.nodeName)
	}
	for _, err := range errs {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	if condition || pods > 0 || len(left) > 0 {
		log.Info("took back what the API server was told", zap.Bool("condition", condition), zap.Int("pods", pods), zap.Strings("left", left))
	}
	return left
}

// uninstaller finds out where things are: what no flag tells, the agent has written down, else the Node object tells. And it
// leaves the marker, which binds the agents of the installation that is in charge.
func (s *settings) uninstaller(ctx context.Context, log *zap.Logger) (*installer, error) {
	if err := os.MkdirAll(s.runDir, 0o700); err != nil {
		return nil, err
	}
	run := node.RunDir{Path: s.runDir}
	there, err := run.Announced()
	if err != nil {
		log.Warn("read what the agent wrote down in vain", zap.Error(err))
	}
	all := *s
	if all.platformName == "auto" {
		all.confDir, all.binDir = cmp.Or(s.confDir, there.ConfDir), cmp.Or(s.binDir, there.BinDir)
		all.multusDir, all.runtimeSocket = cmp.Or(s.multusDir, there.Multus), cmp.Or(s.runtimeSocket, there.Socket)
	}
	i := &installer{settings: all, place: all.place(all.nodeObject(ctx)), run: run, log: log}
	return i, run.Mark(node.Marker{ID: cmp.Or(s.installID, there.ID, s.installation()), Withdrawn: s.withdrawn})
}

// nodeObject is the Node object, if it has to be asked for and the API server answers.
func (s *settings) nodeObject(ctx context.Context) *corev1.Node {
	if s.platformName != "auto" || s.nodeName == "" || s.confDir != "" && s.binDir != "" {
		return nil
	}
	client, err := s.agentClient()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	object, err := nodestatus.New(client, s.nodeName).Info(ctx)
	if err != nil {
		return nil
	}
	return object
}

// takeOut returns what it had to leave, and why. The entry goes whatever the runtime says, or if it says nothing: it only
// decides how long to wait, and whether the binary may go, without which every pod would fail if it still were in the chain.
func (i *installer) takeOut(ctx context.Context, note func(string)) (left []string, err error) {
	if err := i.leave(i.conf, chain.Uninstall, note); err != nil {
		return nil, err
	}
	gone := func(d chain.Dir) (chain.Plan, error) { return chain.UninstallStandalone(d), nil }
	if err := i.leave(i.multus, gone, note); err != nil {
		return nil, err
	}
	if err := i.tell(ctx); err != nil {
		return nil, err
	}
	silent, err := i.awaitReload(ctx)
	if err != nil {
		return nil, fmt.Errorf("the entry is out, what it needs stays: %w", err)
	}
	_, none := os.Stat(filepath.Join(i.credentials.Dir, node.KubeconfigFile))
	if err := i.credentials.Remove(); err != nil {
		return nil, err
	}
	if none == nil {
		note("removed " + i.credentials.Dir)
	}
	if silent != nil {
		return []string{fmt.Sprintf("%s: the runtime does not tell whether its chain still has the plugin: %v; run uninstall again when it answers",
			i.binary, silent)}, nil
	}
	return i.dropBinary(note)
}

// tell has the runtime look, unless it says that it has: an earlier try may have been ended before that.
func (i *installer) tell(ctx context.Context) error {
	if _, err := os.Stat(i.conf.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	told, err := i.ask(ctx)
	if known, runs := told.Runs(pluginType); err == nil && known && !runs {
		return nil
	}
	return i.conf.Nudge()
}

// dropBinary removes it where nothing can name it any more: without it, a pod whose DEL runs it would stay forever.
func (i *installer) dropBinary(note func(string)) (left []string, err error) {
	if _, err := os.Stat(i.binary); errors.Is(err, fs.ErrNotExist) {
		return nil, node.Sweep(filepath.Dir(i.binary))
	}
	uses, err := node.CachedUses(i.cacheDir, pluginType)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s: %v", i.binary, err)}, nil
	case uses > 0:
		return []string{fmt.Sprintf("%s: %d results in %s name it, and the runtime may run it when their pods end; run uninstall again then", i.binary, uses, i.cacheDir)}, nil
	}
	if err := os.Remove(i.binary); err != nil {
		return nil, err
	}
	note("removed " + i.binary)
	return nil, node.Sweep(filepath.Dir(i.binary))
}

// leave carries out a plan in a directory that may not be there.
func (i *installer) leave(conf node.Conf, plan func(chain.Dir) (chain.Plan, error), note func(string)) error {
	if _, err := os.Stat(conf.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return i.carry(conf, plan, note)
}

// awaitReload waits until the runtime says that its chain is without us. One that cannot be asked has time for it. silent is
// why one did not answer that should have.
func (i *installer) awaitReload(ctx context.Context) (silent, err error) {
	began := time.Now()
	ticker := time.NewTicker(loadPause / 5)
	defer ticker.Stop()
	for {
		told, err := i.ask(ctx)
		known, runs := told.Runs(pluginType)
		switch waited := time.Since(began); {
		case err == nil && known && !runs:
			return nil, nil
		case (errors.Is(err, errNobody) || err == nil && !known) && waited > unaskedPause:
			return nil, nil
		case waited > reloadBound && err != nil:
			return err, nil
		case waited > reloadBound:
			return nil, &trouble{stillLoaded, fmt.Errorf("%s still has the plugin in its chain", told.Name)}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}
