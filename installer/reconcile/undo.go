package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/podfile"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

const (
	// reloadTimeout is how long the runtime has to notice that its directory has changed.
	reloadTimeout = 10 * time.Second
	// unaskedPause is for a runtime that cannot be asked: it follows its directory within
	// milliseconds.
	unaskedPause = 2 * time.Second
	// reloadPause is between two questions whether the runtime has noticed.
	reloadPause = 200 * time.Millisecond
)

// undo takes everything of ours out, and returns what it had to leave, and why. First the daemon
// learns that it has to stop; then the entry goes, then what the entry needed. What was done
// already is not missed, so it can be repeated after any interruption. The entry goes whatever the
// runtime says, or if it says nothing: it only decides how long to wait, and whether the binary may
// go, without which every pod would fail if it still were in the chain.
func (r *Reconciler) undo(ctx context.Context, l Removal,
	note func(string)) (left []string, err error) {
	where := r.known.Where
	if l.Marker != nil {
		if err := r.cfg.Dirs.run().Mark(*l.Marker); err != nil {
			return nil, err
		}
	}
	plan := func(d chain.Dir) (chain.Plan, error) { return chain.Uninstall(d, l.Spec) }
	if err := r.carryIfThere(where.Conf, plan, note); err != nil {
		return nil, err
	}
	if err := r.carryIfThere(where.Multus, planNoStandalone, note); err != nil {
		return nil, err
	}
	if err := r.notifyRuntime(ctx); err != nil {
		return nil, err
	}
	silent, err := r.awaitReload(ctx)
	if err != nil {
		return nil, fmt.Errorf("the entry is out, what it needs stays: %w", err)
	}
	removed, err := r.cfg.Dirs.run().RemovePods()
	if err != nil {
		return nil, err
	}
	if removed {
		note("removed " + podfile.Dir(r.cfg.Dirs.Run))
	}
	_, none := os.Stat(filepath.Join(where.Credentials.Dir, names.Kubeconfig))
	if err := where.Credentials.Remove(); err != nil {
		return nil, err
	}
	if none == nil {
		note("removed " + where.Credentials.Dir)
	}
	if silent != nil {
		return []string{fmt.Sprintf("%s: the runtime did not say whether its chain still has the "+
			"plugin: %v; run uninstall again when it answers",
			where.Plugin, silent)}, nil
	}
	return r.dropBinary(note)
}

// carryIfThere carries out a plan in a directory that may not be there.
func (r *Reconciler) carryIfThere(conf node.Conf, plan func(chain.Dir) (chain.Plan, error),
	note func(string)) error {
	if _, err := os.Stat(conf.Path); errors.Is(err, fs.ErrNotExist) {
		return node.Deleted(conf.Path)
	}
	return r.carry(conf, plan, note)
}

// notifyRuntime has the runtime look, unless it says that it has: an earlier try may have been
// ended before that.
func (r *Reconciler) notifyRuntime(ctx context.Context) error {
	conf := r.known.Where.Conf
	if _, err := os.Stat(conf.Path); errors.Is(err, fs.ErrNotExist) {
		return nil // where it is out of reach, carryIfThere has said so
	}
	runtime, err := r.ask(ctx)
	if known, runs := runtime.Runs(names.Plugin); err == nil && known && !runs {
		return nil
	}
	return conf.Nudge()
}

// awaitReload waits until the runtime says that its chain is without us. One that cannot be asked
// has time for it. silent is why one did not answer that should have.
func (r *Reconciler) awaitReload(ctx context.Context) (silent, err error) {
	began := time.Now()
	ticker := time.NewTicker(reloadPause)
	defer ticker.Stop()
	for {
		runtime, err := r.ask(ctx)
		known, runs := runtime.Runs(names.Plugin)
		switch waited := time.Since(began); {
		case err == nil && known && !runs:
			return nil, nil
		case (errors.Is(err, errNobody) || err == nil && !known) && waited > unaskedPause:
			return nil, nil
		case waited > reloadTimeout && err != nil:
			return err, nil
		case waited > reloadTimeout:
			return nil, &Failure{StillLoaded,
				fmt.Errorf("%s still has the plugin in its chain", runtime.Name)}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// dropBinary removes it where nothing can name it any more: without it, a pod whose DEL runs it
// would stay forever.
func (r *Reconciler) dropBinary(note func(string)) (left []string, err error) {
	binary, cache := r.known.Where.Plugin, r.cfg.Dirs.Cache
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return nil, node.Sweep(filepath.Dir(binary))
	}
	uses, err := node.CachedUses(cache, names.Plugin)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s: %v", binary, err)}, nil
	case uses > 0:
		return []string{fmt.Sprintf("%s: %d results in %s name it, and the runtime may run it "+
			"when their pods end; run uninstall again then", binary, uses, cache)}, nil
	}
	if err := os.Remove(binary); err != nil {
		return nil, err
	}
	note("removed " + binary)
	return nil, node.Sweep(filepath.Dir(binary))
}
