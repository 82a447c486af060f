package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// reloadBound is how long the runtime has to notice that its directory has changed.
const reloadBound = 10 * time.Second

// againPause is between two tries, and two looks for what has come back.
const againPause = 10 * time.Second

// uninstall takes the node out. If it shall stay, it tries until it has, and then waits to be ended.
func (c *command) uninstall(ctx context.Context, e env) error {
	log := c.logger(e.stderr)
	if !c.stay {
		return c.settings.uninstallOnce(ctx, log)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	st := &status{synced: func() bool { return true }}
	st.become(state{reason: starting, text: "the node is being taken out"})
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return serve(ctx, listener, st.pages(prometheus.NewRegistry())) })
	all.Go(func() error {
		ticker := time.NewTicker(againPause)
		defer ticker.Stop()
		for {
			st.beat.Store(time.Now().Unix())
			now := state{reason: effective, text: "the node is out"}
			if err := c.settings.uninstallOnce(ctx, log); err != nil {
				now = state{reason: badDisk, text: err.Error()}
			}
			st.become(now)
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	})
	return all.Wait()
}

// uninstallOnce first has the daemon learn that it has to stop; then the entry goes, then what the entry needed. Whatever was
// done already is not missed, so it can be run again after any interruption.
func (s *settings) uninstallOnce(ctx context.Context, log *zap.Logger) error {
	i := &installer{settings: *s, place: s.place(nil), run: node.RunDir{Path: s.runDir}, log: log}
	if err := os.MkdirAll(s.runDir, 0o700); err != nil {
		return err
	}
	if err := i.run.MarkUninstalled(s.installation()); err != nil {
		return err
	}
	unlock, err := i.run.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var changes []string
	left, err := i.takeOut(ctx, func(what string) { changes = append(changes, what) })
	if len(changes)+len(left) > 0 || err != nil {
		log.Info("took node out", zap.Strings("changes", changes), zap.Strings("left", left), zap.Error(err))
	}
	return err
}

// takeOut returns what it had to leave, and why.
func (i *installer) takeOut(ctx context.Context, note func(string)) (left []string, err error) {
	if err := i.leave(i.conf, chain.Uninstall, note); err != nil {
		return nil, err
	}
	gone := func(d chain.Dir) (chain.Plan, error) { return chain.UninstallStandalone(d), nil }
	if err := i.leave(i.multus, gone, note); err != nil {
		return nil, err
	}
	reloaded := i.awaitReload(ctx)
	if reloaded != nil {
		i.log.Warn("waited for runtime in vain", zap.Error(reloaded))
	}
	if _, err := os.Stat(i.credentials.Dir); err == nil {
		if err := i.credentials.Remove(); err != nil {
			return nil, err
		}
		note("removed " + i.credentials.Dir)
	}
	return i.dropBinary(note, reloaded)
}

// dropBinary removes it where nothing can name it any more: without it, a pod whose DEL runs it would stay forever.
func (i *installer) dropBinary(note func(string), reloaded error) (left []string, err error) {
	if _, err := os.Stat(i.binary); errors.Is(err, fs.ErrNotExist) {
		return nil, node.Sweep(filepath.Dir(i.binary))
	}
	uses, err := node.CachedUses(i.cacheDir, pluginType)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s: %v", i.binary, err)}, nil
	case uses > 0:
		return []string{fmt.Sprintf("%s: %d results in %s name it, and the runtime may run it when their pods end; run uninstall again then", i.binary, uses, i.cacheDir)}, nil
	case reloaded != nil:
		return []string{fmt.Sprintf("%s: the runtime may still have it in its chain: %v", i.binary, reloaded)}, nil
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

// awaitReload waits until the runtime says that its chain is without us. One that cannot be asked has had its time.
func (i *installer) awaitReload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadBound)
	defer cancel()
	ticker := time.NewTicker(loadPause / 5)
	defer ticker.Stop()
	for {
		told, err := i.ask(ctx)
		if known, runs := told.Runs(pluginType); errors.Is(err, errNobody) || err == nil && (!known || !runs) {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return fmt.Errorf("%s still has the plugin in its chain", told.Name)
		case <-ticker.C:
		}
	}
}
