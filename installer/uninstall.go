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

// reloadTimeout is how long the runtime has to notice that its directory has changed.
const reloadTimeout = 10 * time.Second

// unaskedPause is for a runtime that cannot be asked: it follows its directory within milliseconds.
const unaskedPause = 2 * time.Second

// againPause is between two tries, and two looks for what has come back.
const againPause = 10 * time.Second

// uninstall takes the node out. If it shall stay, it tries until it has, and then waits to be
// ended.
func (c *command) uninstall(ctx context.Context, e env) error {
	level := c.level()
	u := &uninstallation{settings: c.settings, log: newLogger(level, e.stderr)}
	if !c.stay {
		_, err := u.once(ctx)
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	st, registry := &status{synced: func() bool { return true }}, prometheus.NewRegistry()
	shown := newMetrics(registry)
	st.set(state{reason: starting, text: "the node is being taken out"})
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return serve(ctx, listener, st.pages(registry, level)) })
	all.Go(func() error {
		return u.again(ctx, func(now state) {
			st.beat.Store(time.Now().Unix())
			st.set(now)
			shown.show(now)
		})
	})
	return all.Wait()
}

// uninstallation is what a program that takes a node out has done so far.
type uninstallation struct {
	settings  settings
	log       *zap.Logger
	retracted bool // nothing is left of what was reported to the API server
}

// again takes the node out, looks again for what has come back, and tells each time what came of
// it. It ends where only a new mount helps.
func (u *uninstallation) again(ctx context.Context, tell func(state)) error {
	ticker := time.NewTicker(againPause)
	defer ticker.Stop()
	for {
		now := afterUninstall(u.once(ctx))
		tell(now)
		if now.reason == badMount {
			return fmt.Errorf("%s: %s", now.reason, now.text)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// errResumed is of an uninstallation that an agent of a later pod has ended.
var errResumed = errors.New("an agent whose pod was created after this uninstallation began has taken the node in again")

// afterUninstall is the state of a node that was taken out, or was not because of an error. left
// is what had to stay.
func afterUninstall(left []string, err error) state {
	switch {
	case errors.Is(err, errResumed):
		return state{reason: superseded, text: err.Error()}
	case err != nil:
		return state{reason: reasonOf(err), text: err.Error()}
	case len(left) > 0:
		return state{reason: uninstalled, text: "the node is out; left: " + strings.Join(left, "; "), out: true}
	}
	return state{reason: uninstalled, text: "the node is out", out: true}
}

// once first has the daemon learn that it has to stop; then the entry goes, then what the entry
// needed. Whatever was done already is not missed, so it can be run again after any interruption.
// It returns what it had to leave. All of it is done under the lock: an agent that may take the
// node in again does so before or after.
func (u *uninstallation) once(ctx context.Context) (left []string, err error) {
	run := node.RunDir{Path: u.settings.runDir}
	unlock, err := run.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if resumed, err := run.Resumed(u.settings.withdrawn); err != nil || resumed {
		return nil, cmp.Or(err, errResumed)
	}
	i, err := u.settings.uninstaller(ctx, u.log)
	if err != nil {
		return nil, err
	}
	var changes []string
	left, err = i.takeOut(ctx, func(what string) { changes = append(changes, what) })
	if len(changes) > 0 || err != nil {
		u.log.Info("took node out", zap.Strings("changes", changes), zap.Strings("left", left), zap.Error(err))
	}
	if err == nil && !u.retracted {
		kept := u.settings.retract(ctx, u.log)
		left, u.retracted = append(left, kept...), len(kept) == 0
	}
	return left, err
}

// retract removes what the agent has reported about its node and its pods: nobody keeps it up to
// date from now on. It returns what had to stay.
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
		log.Info("removed condition and labels", zap.Bool("condition", condition), zap.Int("pods", pods), zap.Strings("left", left))
	}
	return left
}

// uninstaller finds out where things are: what no flag tells, the agent has written down, else the
// Node object tells. And it leaves the marker, which binds the agents of the installation that is
// in charge.
func (s *settings) uninstaller(ctx context.Context, log *zap.Logger) (*installer, error) {
	run := node.RunDir{Path: s.runDir}
	there, err := run.Announced()
	if err != nil {
		log.Warn("installation record not read", zap.Error(err))
	}
	all := *s
	if all.platformName == "auto" {
		all.confDir, all.binDir = cmp.Or(s.confDir, there.ConfDir), cmp.Or(s.binDir, there.BinDir)
		all.multusDir, all.runtimeSocket = cmp.Or(s.multusDir, there.Multus), cmp.Or(s.runtimeSocket, there.Socket)
	}
	i := &installer{settings: all, place: all.place(all.nodeObject(ctx)), run: run, log: log}
	return i, mark(run, node.Marker{ID: cmp.Or(s.installID, there.ID, s.installation()), Withdrawn: s.withdrawn})
}

// mark writes the marker. One that was left by hand stays: whoever took that node out alone does
// not want it back with the others.
func mark(run node.RunDir, m node.Marker) error {
	there, marked, err := run.Marked()
	if err == nil && marked && there.Withdrawn.IsZero() && there.Concerns(m.ID) {
		return nil
	}
	return run.Mark(m)
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
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	object, err := nodestatus.New(client, s.nodeName).Info(ctx)
	if err != nil {
		return nil
	}
	return object
}

// takeOut returns what it had to leave, and why. The entry goes whatever the runtime says, or if it
// says nothing: it only decides how long to wait, and whether the binary may go, without which
// every pod would fail if it still were in the chain.
func (i *installer) takeOut(ctx context.Context, note func(string)) (left []string, err error) {
	if runtime, err := i.ask(ctx); err == nil {
		i.runtime = runtime
	}
	out := func(d chain.Dir) (chain.Plan, error) {
		return chain.Uninstall(d, chain.Spec{SkipsBroken: i.runtime.SkipsBroken()})
	}
	if err := i.leave(i.conf, out, note); err != nil {
		return nil, err
	}
	gone := func(d chain.Dir) (chain.Plan, error) { return chain.UninstallStandalone(d), nil }
	if err := i.leave(i.multus, gone, note); err != nil {
		return nil, err
	}
	if err := i.notifyRuntime(ctx); err != nil {
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

// notifyRuntime has the runtime look, unless it says that it has: an earlier try may have been
// ended before that.
func (i *installer) notifyRuntime(ctx context.Context) error {
	if _, err := os.Stat(i.conf.Path); errors.Is(err, fs.ErrNotExist) {
		return nil // where it is out of reach, leave has said so
	}
	runtime, err := i.ask(ctx)
	if known, runs := runtime.Runs(pluginType); err == nil && known && !runs {
		return nil
	}
	return i.conf.Nudge()
}

// dropBinary removes it where nothing can name it any more: without it, a pod whose DEL runs it
// would stay forever.
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
		return node.Deleted(conf.Path)
	}
	return i.carry(conf, plan, note)
}

// awaitReload waits until the runtime says that its chain is without us. One that cannot be asked
// has time for it. silent is why one did not answer that should have.
func (i *installer) awaitReload(ctx context.Context) (silent, err error) {
	began := time.Now()
	ticker := time.NewTicker(loadPause / 5)
	defer ticker.Stop()
	for {
		runtime, err := i.ask(ctx)
		known, runs := runtime.Runs(pluginType)
		switch waited := time.Since(began); {
		case err == nil && known && !runs:
			return nil, nil
		case (errors.Is(err, errNobody) || err == nil && !known) && waited > unaskedPause:
			return nil, nil
		case waited > reloadTimeout && err != nil:
			return err, nil
		case waited > reloadTimeout:
			return nil, &trouble{stillLoaded, fmt.Errorf("%s still has the plugin in its chain", runtime.Name)}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}
