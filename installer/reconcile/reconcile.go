package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Reconciler makes passes over one node.
type Reconciler struct {
	cfg   Settings
	world Sources
	log   *zap.Logger

	known Findings
	joins bool   // a pass that has put the entry in its place takes charge of the node
	newer bool   // an agent that joined later lived when it was last looked
	owed  bool   // the runtime may not know yet what is on the disk
	seen  string // the fingerprint before the disk was last looked at

	member atomic.Pointer[node.Membership] // since this agent took charge
}

// New returns a Reconciler that knows nothing yet. Nothing is read or written before Start or Pass.
func New(cfg Settings, world Sources, log *zap.Logger) *Reconciler {
	cfg.Plugin.Binary = cmp.Or(cfg.Plugin.Binary, besideThis())
	r := &Reconciler{cfg: cfg, world: world, log: log, owed: true}
	r.settle(cfg, nil)
	return r
}

// Start looks around on the node, makes directories that are missing, and logs what an
// administrator may want to know at the start of a daemon. joins says that this is one: the agent
// that joined the node last is in charge of it. A wrong setting is an error at once; what the node
// lacks is said in its state.
func (r *Reconciler) Start(ctx context.Context, joins bool) error {
	r.joins = joins
	object, err := r.nodeObject(ctx)
	if err != nil {
		r.log.Warn("node object not read", zap.Error(err))
		object = nil
	}
	r.settle(r.cfg, object)
	r.provide()
	where := r.known.Where
	if looks, why := where.looksLike(object); looks != "" {
		r.log.Warn("node looks like another platform", zap.String("platform", where.Platform.Name),
			zap.String("want", looks), zap.String("why", why))
	}
	if err := r.askRuntime(ctx); err != nil {
		r.log.Warn("container runtime not reached", zap.Strings("paths", r.known.Where.Sockets),
			zap.Error(err))
	}
	if r.known.Probed, r.known.ProbeErr = r.cfg.Plugin.probe(ctx); r.known.ProbeErr != nil {
		r.log.Error("found no backend", zap.Error(r.known.ProbeErr))
	}
	for _, warning := range r.known.Probed.Warnings {
		r.log.Warn("backend cannot redirect every pod",
			zap.String("backend", r.known.Probed.Backend), zap.String("reason", warning))
	}
	_, err = r.Entry()
	return err
}

// Entry is what stands in the chain, for the backend that was found, or nftables as long as none
// was.
func (r *Reconciler) Entry() ([]byte, error) {
	backend := r.known.Probed.Backend
	if backend == "" {
		backend = redirect.NFTables
	}
	return r.cfg.entry(r.known.Where, backend)
}

// Known is what was found out about the node.
func (r *Reconciler) Known() Findings { return r.known }

// Outcome is what became of a pass.
type Outcome struct {
	Now     State       // the node's state after the pass
	Seen    Observation // that the state was decided by
	Work    Todo        // what was to be done
	Changes []string    // what was done, each a sentence
	Err     error       // what could not be read or done; Now says it too
}

// Pass observes, decides and does what is to be done, and says what the node's state is then.
// Nothing to do changes nothing.
func (r *Reconciler) Pass(ctx context.Context, aim Aim) Outcome {
	if aim == Preview {
		o := r.Observe(ctx, aim)
		if o.RuntimeErr != nil {
			r.log.Warn("container runtime not reached", zap.Strings("paths", r.known.Where.Sockets),
				zap.Error(o.RuntimeErr))
		}
		return r.decide(o)
	}
	unlock, err := r.cfg.Dirs.run().Lock(ctx)
	if err != nil {
		return r.decide(Observation{Goal: aim, Err: err})
	}
	defer unlock()
	began := time.Now()
	before := r.decide(r.Observe(ctx, aim))
	if before.Work.Nothing() {
		return before
	}
	o, changes := r.carryOut(ctx, before.Work, before.Seen)
	after := r.decide(o)
	after.Work, after.Changes = before.Work, changes
	r.report(after, time.Since(began))
	return after
}

// Once makes a pass, and more as long as the runtime has not loaded what was written. Its error
// says why the chain is not effective.
func (r *Reconciler) Once(ctx context.Context) error {
	for end := time.Now().Add(reloadTimeout); ; {
		now := r.Pass(ctx, In).Now
		switch {
		case now.Ready():
			return nil
		case now.Why != NotLoaded || time.Now().After(end) || ctx.Err() != nil:
			return fmt.Errorf("%s: %s", now.Why, now.Text)
		}
		time.Sleep(reloadPause)
	}
}

// carryOut returns what is to be seen on the node afterwards.
func (r *Reconciler) carryOut(ctx context.Context, t Todo,
	o Observation) (after Observation, changes []string) {
	note := func(what string) { changes = append(changes, what) }
	if t.Leave != nil {
		o.Left, o.Failed = r.undo(ctx, *t.Leave, note)
		if o.Done = o.Failed == nil; o.Done && r.world.Retract != nil {
			o.Left = append(o.Left, r.world.Retract(ctx)...)
		}
		return o, changes
	}
	o.Failed = r.do(t, note)
	r.observeAgain(ctx, &o)
	return o, changes
}

func (r *Reconciler) decide(o Observation) Outcome {
	todo, now := Decide(r.cfg, o)
	err := cmp.Or(o.Err, o.Failed)
	if o.Resumed {
		err = errResumed
	}
	return Outcome{Now: now, Seen: o, Work: todo, Err: err}
}

// report logs a pass that did something.
func (r *Reconciler) report(p Outcome, took time.Duration) {
	switch {
	case p.Work.Leave != nil && (len(p.Changes) > 0 || p.Err != nil):
		r.log.Info("took node out", zap.Strings("changes", p.Changes),
			zap.Strings("left", p.Seen.Left), zap.Error(p.Err))
	case p.Work.Leave == nil && len(p.Changes) > 0:
		r.log.Info("changed node", zap.Strings("changes", p.Changes),
			zap.String("way", string(p.Now.Way)), zap.String("reason", string(p.Now.Why)),
			zap.Duration("took", took))
	}
}

// Look is what the files come to, without a pass: nobody is asked. It waits for another agent's
// pass, which writes before it takes charge: a newer agent's entry is not a stranger's, and what an
// uninstallation removes is no stranger's doing.
func (r *Reconciler) Look(ctx context.Context) State {
	unlock, err := r.cfg.Dirs.run().Lock(ctx)
	if err != nil {
		return failed(err)
	}
	defer unlock()
	switch _, marked, err := r.cfg.Dirs.run().Marked(); {
	case err != nil:
		return failed(err)
	case marked:
		return State{Why: Uninstalled, Text: "the node is being taken out"}
	case r.superseded():
		return State{Why: Superseded, Text: supersededText}
	}
	o := Observation{Goal: In, Known: r.known}
	r.readDirectories(&o)
	return r.cfg.onDisk(o)
}

// Changed reports whether there is anything new since the last pass, its own changes aside.
func (r *Reconciler) Changed() bool {
	now, err := r.fingerprint()
	return err != nil || now != r.seen
}

// fingerprint is another one after any change that matters.
func (r *Reconciler) fingerprint() (string, error) {
	where := r.known.Where
	files := []string{
		where.Plugin, r.cfg.Plugin.CAFile, filepath.Join(where.Multus.Path, chain.StandaloneName),
		filepath.Join(r.cfg.Dirs.Run, names.Uninstalled),
	}
	for _, name := range []string{names.Token, names.CA, names.Kubeconfig} {
		files = append(files, filepath.Join(where.Credentials.Dir, name))
	}
	if r.world.TokenFile != "" {
		files = append(files, r.world.TokenFile)
	}
	return node.Fingerprint(where.Conf, files...)
}

// Watched are the directories in which a change may matter.
func (r *Reconciler) Watched() []string {
	where := r.known.Where
	paths := []string{
		where.Conf.Path, where.Credentials.Dir, where.binDir(), r.cfg.Dirs.Run, where.Multus.Path,
		filepath.Dir(r.cfg.Plugin.CAFile),
	}
	if r.world.TokenFile != "" {
		paths = append(paths, filepath.Dir(r.world.TokenFile))
	}
	return paths
}

// Leads reports whether this agent has taken charge of the node, and no newer one since.
func (r *Reconciler) Leads() bool { return r.Member() != nil && !r.newer }

// Member is this agent among those of the node; nil before it has taken charge. It may be asked for
// at any time.
func (r *Reconciler) Member() *node.Membership { return r.member.Load() }

// End has the other agents know that this one is gone.
func (r *Reconciler) End() {
	if member := r.Member(); member != nil {
		member.Leave()
	}
}
