package reconcile

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sidecar-cni/sidecar-cni/contract/installation"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// do carries out what Decide has said of a node that the plugin is on, and notes each change. What
// the entry needs is written before the entry. The credentials are for the time when the agent is
// away: that they could not be written keeps nothing else from being done.
func (r *Reconciler) do(t Todo, note func(string)) error {
	where := r.known.Where
	if t.Resume != nil {
		if err := r.cfg.Dirs.run().Resume(*t.Resume); err != nil {
			return diskFailure(err)
		}
	}
	if t.Plugin != nil {
		changed, err := node.InstallBinary(t.Plugin.From, t.Plugin.To)
		switch {
		case errors.Is(err, node.ErrDeleted):
			return diskFailure(err)
		case err != nil:
			return &Failure{BadBinary, err}
		case changed:
			note("wrote " + t.Plugin.To)
		}
	}
	var late error
	if c := t.Credentials; c != nil {
		changed, err := where.Credentials.Write(c.Token, c.CA, c.Server)
		for _, name := range changed {
			note("wrote " + filepath.Join(where.Credentials.Dir, name))
		}
		if err != nil {
			late = &Failure{NoAccess, err}
		}
	}
	if t.Enter != nil {
		if err := r.enter(*t.Enter, note); err != nil {
			return err
		}
	}
	return late
}

// enter brings the entry into the chain. The new way is in before the old one is out, and this
// agent takes charge last.
func (r *Reconciler) enter(e Insertion, note func(string)) error {
	where := r.known.Where
	if e.Multus != nil {
		err := r.carry(where.Multus,
			func(d chain.Dir) (chain.Plan, error) { return chain.InstallStandalone(d, e.Spec) },
			note)
		if err != nil {
			return err
		}
	}
	err := r.carry(where.Conf,
		func(d chain.Dir) (chain.Plan, error) { return chain.Install(d, e.Spec) }, note)
	if err == nil && e.Clear {
		err = r.carry(where.Multus, planNoStandalone, note)
	}
	if err == nil && e.Plan.Way == chain.DropIn && r.owed {
		err = r.nudge()
	}
	if err == nil {
		err = r.lead()
	}
	return err
}

func planNoStandalone(d chain.Dir) (chain.Plan, error) { return chain.UninstallStandalone(d), nil }

// nudge has the runtime look again, which watches its directory and nothing below it. It is owed
// since the last drop-in was written, perhaps by an agent that was killed then.
func (r *Reconciler) nudge() error {
	if err := r.known.Where.Conf.Nudge(); err != nil {
		return diskFailure(err)
	}
	r.owed = false
	return nil
}

// lead takes charge: not before our own entry is in its place, since an agent that cannot work must
// not stop one that can. The pass holds the lock, so no other agent meanwhile takes our entry for a
// stranger's.
func (r *Reconciler) lead() error {
	if r.Member() != nil || !r.joins {
		return nil
	}
	member, err := r.cfg.Dirs.run().Join()
	if err != nil {
		return err
	}
	r.member.Store(member)
	where := r.known.Where
	there := installation.Installation{ID: r.installation(), ConfDir: where.Conf.Path,
		BinDir: where.binDir(), Multus: where.Multus.Path}
	if len(where.Sockets) == 1 {
		there.Socket = where.Sockets[0]
	}
	return r.cfg.Dirs.run().Announce(there)
}

// carry reads a directory, plans and does. Another writer in between makes it begin anew.
func (r *Reconciler) carry(conf node.Conf, plan func(chain.Dir) (chain.Plan, error),
	note func(string)) error {
	const tries = 3
	var err error
	for range tries {
		if err = r.carryOnce(conf, plan, note); !errors.Is(err, node.ErrChanged) {
			return err
		}
	}
	return diskFailure(err)
}

func (r *Reconciler) carryOnce(conf node.Conf, plan func(chain.Dir) (chain.Plan, error),
	note func(string)) error {
	if err := conf.Sweep(); err != nil {
		return diskFailure(err)
	}
	dir, err := conf.Read()
	if err != nil {
		return diskFailure(err)
	}
	p, err := plan(dir)
	if err != nil {
		return err
	}
	err = conf.Carry(dir, p.Steps, func(s chain.Step) {
		r.owed = r.owed || filepath.Dir(s.Name) != "."
		note(fmt.Sprintf("%s (in %s)", s, conf.Path))
	})
	if err != nil && !errors.Is(err, node.ErrChanged) {
		return diskFailure(err)
	}
	return err
}
