package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// installer brings a node into the state that the settings ask for.
type installer struct {
	settings
	place
	run    node.RunDir
	member *node.Membership // nil for a pass alone
	access access
	probed probed
	log    *zap.Logger
}

// pass does what is to be done, and says what the node's state is then. Nothing to do changes nothing.
func (i *installer) pass(ctx context.Context) (state, []string) {
	unlock, err := i.run.Lock(ctx)
	if err != nil {
		return state{reason: badDisk, text: err.Error()}, nil
	}
	defer unlock()
	began := time.Now()
	var changes []string
	note := func(what string) { changes = append(changes, what) }
	out, err := i.run.Uninstalled(i.installation())
	switch {
	case err != nil:
		return state{reason: badDisk, text: err.Error()}, nil
	case out:
		return state{reason: uninstalled, text: "the node was taken out; it takes part again in an installation of another --install-id"}, nil
	}
	if i.superseded() {
		return state{reason: superseded, text: "a newer agent on this node is in charge"}, nil
	}
	s := i.evaluate(ctx, i.install(ctx, note))
	if len(changes) > 0 {
		i.log.Info("changed node", zap.Strings("changes", changes), zap.String("way", string(s.way)), zap.String("reason", string(s.reason)),
			zap.Duration("took", time.Since(began)))
	}
	return s, changes
}

// superseded reports whether a newer agent is in charge, as during an update. One that cannot tell goes on: writing what is
// there already changes nothing.
func (i *installer) superseded() bool {
	if i.member == nil {
		return false
	}
	older, err := i.member.Superseded()
	if err != nil {
		i.log.Warn("looked for other agents in vain", zap.Error(err))
	}
	return older && err == nil
}

// install writes what the entry needs before the entry. The credentials are for the time when the agent is away: without
// them the node is not ready, but its pods are served.
func (i *installer) install(ctx context.Context, note func(string)) error {
	if err := i.runtime.Refuses(i.conf.Path, filepath.Dir(i.binary)); err != nil {
		return &trouble{badPlace, err}
	}
	if i.probed.backend == "" {
		return &trouble{noBackend, errors.New("no backend works")}
	}
	if err := i.rival(); err != nil {
		return err
	}
	changed, err := node.InstallBinary(i.source(), i.binary)
	if err != nil {
		return &trouble{badBinary, err}
	}
	if changed {
		note("wrote " + i.binary)
	}
	late := i.writeCredentials(ctx, note)
	if err := i.enter(note); err != nil {
		return err
	}
	return late
}

// rival is another mesh's plugin in the chain. Beside it nothing is written, not even what would do no harm.
func (i *installer) rival() error {
	wish, err := i.wish()
	if err != nil {
		return &trouble{badSettings, err}
	}
	dir, err := i.conf.Read()
	if err != nil {
		return &trouble{badDisk, err}
	}
	_, err = chain.Install(dir, wish)
	if r, ok := errors.AsType[*chain.Refusal](err); ok && r.Reason == chain.OtherMesh {
		return err
	}
	return nil
}

func (i *installer) writeCredentials(ctx context.Context, note func(string)) error {
	token, err := i.access.token(ctx)
	if err != nil {
		return &trouble{noAccess, err}
	}
	ca, err := os.ReadFile(i.caFile)
	if err != nil {
		return &trouble{noAccess, fmt.Errorf("read --ca-file: %w", err)}
	}
	changed, err := i.credentials.Write(token, ca, i.access.server)
	for _, name := range changed {
		note("wrote " + filepath.Join(i.credentials.Dir, name))
	}
	if err != nil {
		return &trouble{noAccess, err}
	}
	return nil
}

// enter brings the entry into the chain. The new way is in before the old one is out.
func (i *installer) enter(note func(string)) error {
	wish, err := i.wish()
	if err != nil {
		return &trouble{badSettings, err}
	}
	dir, err := i.conf.Read()
	if err != nil {
		return &trouble{badDisk, err}
	}
	plan, err := chain.Install(dir, wish)
	if err != nil {
		return err
	}
	if plan.Way == chain.Standalone {
		if err := i.carry(i.multus, func(d chain.Dir) (chain.Plan, error) { return chain.InstallStandalone(d, wish) }, note); err != nil {
			return err
		}
	}
	err = i.carry(i.conf, func(d chain.Dir) (chain.Plan, error) { return chain.Install(d, wish) }, note)
	if err == nil && plan.Way != chain.Standalone {
		err = i.leaveMultus(note)
	}
	return err
}

// leaveMultus takes away what an earlier way left in Multus' directory, if there is one.
func (i *installer) leaveMultus(note func(string)) error {
	if _, err := os.Stat(i.multus.Path); err != nil {
		return nil //nolint:nilerr // no such directory, or none that we could have written to
	}
	return i.carry(i.multus, func(d chain.Dir) (chain.Plan, error) { return chain.UninstallStandalone(d), nil }, note)
}

func (i *installer) wish() (chain.Wish, error) {
	entry, err := i.entry(i.place, i.probed.backend)
	return chain.Wish{Way: chain.Way(i.way), LoadsDropIns: i.runtime.LoadsDropIns(), Entry: entry, Standalone: i.attachment}, err
}

// carry reads a directory, plans and does. Another writer in between makes it begin anew.
func (i *installer) carry(conf node.Conf, plan func(chain.Dir) (chain.Plan, error), note func(string)) error {
	const tries = 3
	var err error
	for range tries {
		if err = carryOnce(conf, plan, note); !errors.Is(err, node.ErrChanged) {
			return err
		}
	}
	return &trouble{badDisk, err}
}

func carryOnce(conf node.Conf, plan func(chain.Dir) (chain.Plan, error), note func(string)) error {
	if err := conf.Sweep(); err != nil {
		return &trouble{badDisk, err}
	}
	dir, err := conf.Read()
	if err != nil {
		return &trouble{badDisk, err}
	}
	p, err := plan(dir)
	if err != nil {
		return err
	}
	nested := false
	err = conf.Carry(dir, p.Steps, func(s chain.Step) {
		nested = nested || filepath.Dir(s.Name) != "."
		note(fmt.Sprintf("%s (in %s)", s, conf.Path))
	})
	if nested { // the runtime watches the directory, and nothing below it
		err = errors.Join(err, conf.Nudge())
	}
	if err != nil && !errors.Is(err, node.ErrChanged) {
		return &trouble{badDisk, err}
	}
	return err
}

// evaluate says what the node's state is, whatever was done. An error of the pass is a state that it could not mend.
func (i *installer) evaluate(ctx context.Context, err error) state {
	s := i.onDisk()
	if err == nil && s.ready() && s.way != chain.Standalone {
		return i.loaded(ctx, s)
	}
	if err == nil {
		return s
	}
	if t, ok := errors.AsType[*trouble](err); ok {
		s.reason, s.text = t.reason, t.Error()
		return s
	}
	if r, ok := errors.AsType[*chain.Refusal](err); ok {
		s.reason, s.text = reason(r.Reason), r.Text
		return s
	}
	s.reason, s.text = badDisk, err.Error()
	return s
}

// onDisk is what the files come to.
func (i *installer) onDisk() state {
	wish, err := i.wish()
	if err != nil {
		return state{reason: badSettings, text: err.Error()}
	}
	dir, err := i.conf.Read()
	if err != nil {
		return state{reason: badDisk, text: err.Error()}
	}
	found := chain.Evaluate(dir, wish)
	if found.Effective && found.Way == chain.Standalone {
		if dir, err = i.multus.Read(); err != nil {
			return state{reason: badDisk, text: err.Error()}
		}
		found = chain.EvaluateStandalone(dir, wish)
	}
	return state{reason: reason(found.Reason), text: found.Text, way: found.Way, file: found.Primary}
}

// loaded asks the runtime, whose word counts. One that cannot be asked is believed to do what its documentation says.
func (i *installer) loaded(ctx context.Context, s state) state {
	told, err := i.ask(ctx)
	if err != nil {
		i.log.Debug("asked runtime in vain", zap.Error(err))
		return s
	}
	i.runtime = told
	if known, runs := told.Runs(pluginType); known && !runs {
		s.reason = notLoaded
		s.text = fmt.Sprintf("%s has our entry, and %s has not loaded it: %s", s.file, told.Name, told.LastLoad)
	}
	return s
}
