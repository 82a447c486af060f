package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Todo is what a pass has to do. Its zero value is nothing.
type Todo struct {
	Resume      *node.Marker // of an uninstallation that was given up: it is removed
	Plugin      *Copy        // is brought up to date
	Credentials *Access      // are brought up to date
	Enter       *Insertion   // the entry is brought into the chain
	Leave       *Removal     // everything of ours is taken out
}

// Copy is of the plugin's.
type Copy struct {
	From, To string // paths
}

// Access is what the plugin asks the API server with.
type Access struct {
	Token, CA []byte // the token, and the certificates in PEM that the server is known by
	Server    string // the API server's URL
}

// Insertion says what the chain shall be. The plans are for the directories as they were observed;
// a directory that has changed since is planned for anew.
type Insertion struct {
	Spec   chain.Spec  // what shall be
	Plan   chain.Plan  // of the runtime's directory
	Multus *chain.Plan // of the way standalone
	Clear  bool        // what another way may have left for Multus goes
}

// Removal says what there is to do about a node that is taken out.
type Removal struct {
	Marker *node.Marker // to be written; nil if that which is there shall stay
	Spec   chain.Spec   // SkipsBroken only: nothing else matters then
}

// Nothing reports whether there is nothing to do.
func (t Todo) Nothing() bool { return t == Todo{} }

// takenOut reports whether an uninstallation forbids this agent to write. An agent whose pod was
// created later takes the node in again: a container that was started again in an older pod does
// not, and where that is not known, the node stays out.
func (o Observation) takenOut() bool {
	return o.Marked && o.Marker.Concerns(o.ID) && !o.Marker.Before(o.Created)
}

// Decide says what there is to do about a node, and what state it is in as it was observed. It does
// nothing but that: what it says depends on its arguments alone.
func Decide(cfg Settings, o Observation) (Todo, State) {
	switch {
	case o.Goal == Out:
		return decideOut(cfg, o)
	case o.Goal == "":
		return Todo{}, State{Why: Starting, Text: "no pass has ended yet"}
	case o.Err != nil:
		return Todo{}, failed(o.Err)
	case o.takenOut():
		return Todo{}, State{Why: Uninstalled, Text: "the node was taken out; it takes part " +
			"again in another installation, " +
			"when helm rollback takes an uninstallation back that did not finish, " +
			"or when the file uninstalled in " + cfg.Dirs.Run + " is removed"}
	}
	var todo Todo
	if o.Marked { // by an earlier installation, or by an uninstallation that was given up
		todo.Resume = &o.Marker
	}
	switch {
	case o.Newer && o.Failed != nil:
		return todo, failed(o.Failed)
	case o.Newer:
		return todo, behind(cfg, o)
	}
	err := todo.install(cfg, o)
	return todo, cfg.evaluate(o, cmp.Or(o.Failed, err))
}

const supersededText = "a newer agent on this node is in charge"

// behind is the state while another agent is in charge. What its entry looks like is its matter;
// that there is one is ours.
func behind(cfg Settings, o Observation) State {
	s := cfg.onDisk(o)
	if s.Way != "" {
		s.Why, s.Text = Superseded, supersededText
	}
	return s
}

// install says what the entry needs, and the entry. An error says why it cannot be, or not all of
// it. Where the runtime's directories are others, or another mesh is in the chain, nothing is
// written, not even what would do no harm.
func (t *Todo) install(cfg Settings, o Observation) error {
	dirs := cfg.Dirs
	switch {
	case !o.Known.Where.Known && o.Known.Runtime.ConfDir == "" &&
		(dirs.Conf == "" || dirs.Bin == "") && o.Goal != Preview:
		return &Failure{NoNode, errors.New("--platform auto: neither the API server nor the " +
			"container runtime has answered yet, so that the kind of node is not known")}
	case o.Known.ProbeErr != nil:
		return &Failure{NoBackend, o.Known.ProbeErr}
	case o.Refused != nil:
		return &Failure{BadPlace, o.Refused}
	}
	spec, err := cfg.spec(o)
	switch {
	case err != nil:
		return &Failure{BadSettings, err}
	case o.Conf.Err != nil:
		return diskFailure(o.Conf.Err)
	}
	plan, err := chain.Install(o.Conf.Files, spec)
	if r, ok := errors.AsType[*chain.Refusal](err); ok && r.Reason == chain.OtherMesh {
		return err
	}
	t.Plugin = &Copy{From: cfg.Plugin.Binary, To: o.Known.Where.Plugin}
	if o.Token != nil && o.AccessErr == nil {
		t.Credentials = &Access{Token: o.Token, CA: o.CA, Server: cfg.Plugin.APIServer}
	}
	if err != nil {
		return err
	}
	return t.enter(o, Insertion{Spec: spec, Plan: plan})
}

// enter adds the entry. The credentials are for the time when the agent is away: without them the
// node is not ready, but its pods are served.
func (t *Todo) enter(o Observation, e Insertion) error {
	e.Clear = o.HasMultus && e.Plan.Way != chain.Standalone
	if e.Plan.Way == chain.Standalone {
		if o.Multus.Err != nil {
			return diskFailure(o.Multus.Err)
		}
		plan, err := chain.InstallStandalone(o.Multus.Files, e.Spec)
		if err != nil {
			return err
		}
		e.Multus = &plan
	}
	t.Enter = &e
	if o.AccessErr != nil {
		return &Failure{NoAccess, o.AccessErr}
	}
	return nil
}

// spec says what the chain shall be.
func (cfg Settings) spec(o Observation) (chain.Spec, error) {
	entry, err := cfg.entry(o.Known.Where, o.Known.Probed.Backend)
	runtime := o.Known.Runtime
	return chain.Spec{
		Way: chain.Way(cfg.Chain.Way), Entry: entry, Standalone: cfg.Chain.Attachment,
		LoadsDropIns: o.loadsDropIns(), ManyNetworks: runtime.ManyNetworks,
		SkipsBroken: runtime.SkipsBroken(),
	}, err
}

// loadsDropIns believes a drop-in that is there while it is not known what the runtime is, as after
// a reboot without the API server: it was written when it was known.
func (o Observation) loadsDropIns() bool {
	if o.Known.Runtime.Name != "" {
		return o.Known.Runtime.LoadsDropIns()
	}
	return slices.ContainsFunc(o.Conf.Files, func(f chain.File) bool {
		return strings.Contains(f.Name, "/") && path.Base(f.Name) == chain.DropInName
	})
}

// evaluate says what the node's state is, whatever was done. An error is a state that could not be
// mended.
func (cfg Settings) evaluate(o Observation, err error) State {
	s := cfg.onDisk(o)
	if s.Ready() && s.Way != chain.Standalone {
		s = loaded(o, s)
	}
	// Missing credentials matter less than an entry that is not there.
	if f, ok := errors.AsType[*Failure](err); err == nil || ok && f.Why == NoAccess && !s.Ready() {
		return s
	}
	s.Why, s.Text = reasonOf(err), err.Error()
	return s
}

// onDisk is what the files come to.
func (cfg Settings) onDisk(o Observation) State {
	spec, err := cfg.spec(o)
	switch {
	case err != nil:
		return State{Why: BadSettings, Text: err.Error()}
	case o.Conf.Err != nil:
		return failed(diskFailure(o.Conf.Err))
	}
	found := chain.Evaluate(o.Conf.Files, spec)
	if found.Effective && found.Way == chain.Standalone {
		if o.Multus.Err != nil {
			return failed(diskFailure(o.Multus.Err))
		}
		found = chain.EvaluateStandalone(o.Multus.Files, spec)
	}
	return State{Why: Reason(found.Reason), Text: found.Text, Way: found.Way, File: found.Primary}
}

// loaded goes by the runtime, whose word counts. One that cannot be asked is believed to do what
// its documentation says. Where another one answers, the settings are wrong about the runtime, and
// perhaps about its directories.
func loaded(o Observation, s State) State {
	if _, ok := errors.AsType[*notOurs](o.RuntimeErr); ok {
		s.Why, s.Text = OtherRuntime, o.RuntimeErr.Error()
	}
	if o.RuntimeErr != nil {
		return s
	}
	if known, runs := o.Known.Runtime.Runs(names.Plugin); known && !runs {
		s.Why = NotLoaded
		s.Text = fmt.Sprintf("%s has our entry, and %s has not loaded it: %s", s.File,
			o.Known.Runtime.Name, o.Known.Runtime.LastLoad)
	}
	return s
}

// errResumed is of an uninstallation that an agent of a later pod has ended.
var errResumed = errors.New("an agent whose pod was created after this uninstallation began has " +
	"taken the node in again")

// decideOut is Decide for a node that shall be taken out. The marker binds the agents of the
// installation that is in charge. One that was left by hand stays: whoever took that node out alone
// does not want it back with the others.
func decideOut(cfg Settings, o Observation) (Todo, State) {
	switch err := cmp.Or(o.Err, o.Failed); {
	case o.Resumed:
		return Todo{}, State{Why: Superseded, Text: errResumed.Error()}
	case err != nil:
		return Todo{}, failed(err)
	case o.Done:
		return Todo{}, TakenOut(o.Left)
	}
	leave := Removal{Spec: chain.Spec{SkipsBroken: o.Known.Runtime.SkipsBroken()}}
	if !o.Marked || !o.Marker.Withdrawn.IsZero() || !o.Marker.Concerns(o.ID) {
		leave.Marker = &node.Marker{ID: o.ID, Withdrawn: cfg.Withdrawn}
	}
	return Todo{Leave: &leave}, State{Why: Starting, Text: "the node is being taken out"}
}

// TakenOut is the state of a node that was taken out. left is what had to stay.
func TakenOut(left []string) State {
	text := "the node is out"
	if len(left) > 0 {
		text += "; left: " + strings.Join(left, "; ")
	}
	return State{Why: Uninstalled, Text: text, Out: true}
}
