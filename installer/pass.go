package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// installer brings a node into the state that the settings ask for.
type installer struct {
	settings
	place
	run     node.RunDir
	object  func(context.Context) (*corev1.Node, error) // the Node object, from the API server
	created func(context.Context) (time.Time, error)    // when the agent's pod was created; nil outside of one
	join    func() (*node.Membership, error)            // nil for a pass alone
	member  *node.Membership                            // since the entry was first in its place
	leads   atomic.Bool                                 // whether there is a membership
	newer   atomic.Bool                                 // whether an agent lives that joined later, by the last pass
	access  access
	probed  probed
	owed    bool   // the runtime may not know yet what is on the disk
	seen    string // the fingerprint before the disk was last evaluated
	log     *zap.Logger
}

// pass does what is to be done, and says what the node's state is then. Nothing to do changes
// nothing.
func (i *installer) pass(ctx context.Context) (state, []string) {
	unlock, err := i.run.Lock(ctx)
	if err != nil {
		return state{reason: disk(err).reason, text: err.Error()}, nil
	}
	defer unlock()
	began := time.Now()
	var changes []string
	note := func(what string) { changes = append(changes, what) }
	out, err := i.takenOut(ctx)
	switch {
	case err != nil:
		return state{reason: disk(err).reason, text: err.Error()}, nil
	case out:
		return i.outState(), nil
	}
	if i.superseded() {
		return i.behind(), nil
	}
	err = i.install(ctx, note)
	s := i.evaluate(ctx, err)
	if len(changes) > 0 {
		i.log.Info("changed node", zap.Strings("changes", changes), zap.String("way", string(s.way)), zap.String("reason", string(s.reason)),
			zap.Duration("took", time.Since(began)))
	}
	return s, changes
}

// takenOut reports whether an uninstallation forbids this agent to write. The marker of an earlier
// installation, or of an uninstallation of this one that was given up since, is removed.
func (i *installer) takenOut(ctx context.Context) (bool, error) {
	marker, there, err := i.run.Marked()
	if err != nil || !there {
		return false, err
	}
	if marker.Concerns(i.installation()) && !i.younger(ctx, marker) {
		return true, nil
	}
	return false, i.run.Resume(marker)
}

// younger reports whether the agent's pod was created after the uninstallation. A container that
// was started again in an older pod is not; where nobody tells, the node stays out.
func (i *installer) younger(ctx context.Context, marker node.Marker) bool {
	if marker.Withdrawn.IsZero() || i.created == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	created, err := i.created(ctx)
	if err != nil {
		i.log.Warn("pod creation time not read", zap.Error(err))
		return false
	}
	return marker.Before(created)
}

// outState is the state of a node that was uninstalled.
func (i *installer) outState() state {
	return state{reason: uninstalled, text: "the node was taken out; it takes part again in another installation, " +
		"when helm rollback takes an uninstallation back that did not finish, " +
		"or when the file uninstalled in " + i.run.Path + " is removed"}
}

// superseded reports whether a newer agent is in charge, as during an update. One that cannot tell
// goes on: writing what is there already changes nothing.
func (i *installer) superseded() bool {
	if i.member == nil {
		return false
	}
	older, err := i.member.Superseded()
	if err != nil {
		i.log.Warn("other agents not listed", zap.Error(err))
	}
	i.newer.Store(older && err == nil)
	return older && err == nil
}

// behind is the state while another agent is in charge. What its entry looks like is its matter;
// that there is one is ours.
func (i *installer) behind() state {
	s := i.onDisk()
	if s.way != "" {
		s.reason, s.text = superseded, "a newer agent on this node is in charge"
	}
	return s
}

// lead takes charge: not before our own entry is in its place, since an agent that cannot work must
// not stop one that can. The pass holds the lock, so no other agent meanwhile takes our entry for a
// stranger's.
func (i *installer) lead() error {
	if i.member != nil || i.join == nil {
		return nil
	}
	member, err := i.join()
	if err != nil {
		return err
	}
	i.member = member
	i.leads.Store(true)
	there := node.Installation{ID: i.installation(), ConfDir: i.conf.Path, BinDir: filepath.Dir(i.binary), Multus: i.multus.Path}
	if len(i.sockets) == 1 {
		there.Socket = i.sockets[0]
	}
	return i.run.Announce(there)
}

// install writes what the entry needs before the entry. The credentials are for the time when the
// agent is away: without them the node is not ready, but its pods are served.
func (i *installer) install(ctx context.Context, note func(string)) error {
	if err := i.findOut(ctx); err != nil {
		return err
	}
	if err := i.runtime.Refuses(i.conf.Path, filepath.Dir(i.binary)); err != nil {
		return &trouble{badPlace, err}
	}
	if err := i.rival(); err != nil {
		return err
	}
	changed, err := node.InstallBinary(i.source(), i.binary)
	if errors.Is(err, node.ErrDeleted) {
		return disk(err)
	}
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

// findOut asks what may have changed, or was not known before: what the runtime uses, what the node
// is, what it can.
func (i *installer) findOut(ctx context.Context) error {
	runtime, err := i.ask(ctx)
	if err == nil {
		i.runtime = runtime
	}
	if i.runtime.Name == "" || !i.known {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if object, err := i.object(asking); err == nil {
			runtime := i.runtime
			i.place = i.settings.place(object)
			if runtime.Name != "" {
				i.runtime = runtime
			}
		}
	}
	if !i.known && i.runtime.ConfDir == "" && (i.confDir == "" || i.binDir == "") {
		return &trouble{noNode, errors.New("--platform auto: neither the API server nor the container runtime has answered yet, so that the kind of node is not known")}
	}
	if i.probed.backend == "" {
		if i.probed, err = i.probe(ctx); err != nil {
			return &trouble{noBackend, err}
		}
	}
	return nil
}

// rival is another mesh's plugin in the chain. Beside it nothing is written, not even what would do
// no harm.
func (i *installer) rival() error {
	spec, err := i.spec()
	if err != nil {
		return &trouble{badSettings, err}
	}
	dir, err := i.conf.Read()
	if err != nil {
		return disk(err)
	}
	_, err = chain.Install(dir, spec)
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
	spec, err := i.spec()
	if err != nil {
		return &trouble{badSettings, err}
	}
	dir, err := i.conf.Read()
	if err != nil {
		return disk(err)
	}
	plan, err := chain.Install(dir, spec)
	if err != nil {
		return err
	}
	if plan.Way == chain.Standalone {
		if _, err := i.readMultus(); err != nil {
			return disk(err)
		}
		if err := i.carry(i.multus, func(d chain.Dir) (chain.Plan, error) { return chain.InstallStandalone(d, spec) }, note); err != nil {
			return err
		}
	}
	err = i.carry(i.conf, func(d chain.Dir) (chain.Plan, error) { return chain.Install(d, spec) }, note)
	if err == nil && plan.Way != chain.Standalone {
		err = i.leaveMultus(note)
	}
	if err == nil && plan.Way == chain.DropIn {
		err = i.nudge()
	}
	if err == nil {
		err = i.lead()
	}
	return err
}

// nudge has the runtime look again, which watches its directory and nothing below it. It is owed
// since the last drop-in was written, perhaps by an agent that was killed then.
func (i *installer) nudge() error {
	if !i.owed {
		return nil
	}
	if err := i.conf.Nudge(); err != nil {
		return disk(err)
	}
	i.owed = false
	return nil
}

// leaveMultus takes away what an earlier way left in Multus' directory, if there is one.
func (i *installer) leaveMultus(note func(string)) error {
	if _, err := os.Stat(i.multus.Path); err != nil {
		return nil //nolint:nilerr // no such directory, or none that we could have written to
	}
	return i.carry(i.multus, func(d chain.Dir) (chain.Plan, error) { return chain.UninstallStandalone(d), nil }, note)
}

func (i *installer) spec() (chain.Spec, error) {
	entry, err := i.entry(i.place, i.probed.backend)
	return chain.Spec{
		Way: chain.Way(i.way), LoadsDropIns: i.loadsDropIns(), ManyNetworks: i.runtime.ManyNetworks, SkipsBroken: i.runtime.SkipsBroken(),
		Entry: entry, Standalone: i.attachment,
	}, err
}

// loadsDropIns believes a drop-in that is there while nobody tells what the runtime is, as after a
// reboot without the API server: it was written when it was known.
func (i *installer) loadsDropIns() bool {
	if i.runtime.Name != "" {
		return i.runtime.LoadsDropIns()
	}
	there, err := filepath.Glob(filepath.Join(i.conf.Path, "*", chain.DropInName))
	return err == nil && len(there) > 0
}

// carry reads a directory, plans and does. Another writer in between makes it begin anew.
func (i *installer) carry(conf node.Conf, plan func(chain.Dir) (chain.Plan, error), note func(string)) error {
	const tries = 3
	var err error
	for range tries {
		if err = i.carryOnce(conf, plan, note); !errors.Is(err, node.ErrChanged) {
			return err
		}
	}
	return disk(err)
}

func (i *installer) carryOnce(conf node.Conf, plan func(chain.Dir) (chain.Plan, error), note func(string)) error {
	if err := conf.Sweep(); err != nil {
		return disk(err)
	}
	dir, err := conf.Read()
	if err != nil {
		return disk(err)
	}
	p, err := plan(dir)
	if err != nil {
		return err
	}
	err = conf.Carry(dir, p.Steps, func(s chain.Step) {
		i.owed = i.owed || filepath.Dir(s.Name) != "."
		note(fmt.Sprintf("%s (in %s)", s, conf.Path))
	})
	if err != nil && !errors.Is(err, node.ErrChanged) {
		return disk(err)
	}
	return err
}

// fingerprint is another one after any change that matters.
func (i *installer) fingerprint() (string, error) {
	files := []string{i.binary, i.caFile, filepath.Join(i.multus.Path, chain.StandaloneName), filepath.Join(i.run.Path, "uninstalled")}
	for _, name := range []string{"token", "ca.crt", node.KubeconfigFile} {
		files = append(files, filepath.Join(i.credentials.Dir, name))
	}
	if path := i.tokenPath(); path != "" {
		files = append(files, path)
	}
	return node.Fingerprint(i.conf, files...)
}
