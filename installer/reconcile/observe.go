package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/contract/installation"
	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/cri"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Aim is what a pass is for.
type Aim string

// The aims.
const (
	In      Aim = "in"      // the plugin is in the chain
	Out     Aim = "out"     // nothing of ours is left
	Preview Aim = "preview" // as In, and nothing is written
)

// Observation is what is known of a node when it is decided what to do. Its zero value is that of
// a node which nobody has looked at yet.
type Observation struct {
	Goal Aim   // "" before the first pass
	Err  error // nothing else could be read

	ID      string      // of this installation; "" if it is not known
	Marked  bool        // an uninstallation has left its marker
	Marker  node.Marker // zero if not Marked
	Created time.Time   // when the agent's own pod was; zero if that is not known
	Newer   bool        // an agent lives on the node that joined later
	Resumed bool        // the uninstallation that is asked for was given up

	Known      Findings // found out by this pass and earlier ones
	RuntimeErr error    // the runtime did not answer, or another one did
	Refused    error    // the runtime uses other directories than these

	Conf      Listing // the runtime's directory
	Multus    Listing // Multus' directory
	HasMultus bool    // there is a directory of Multus'

	Token     []byte // for the API server; nil if none is to be written
	CA        []byte // the API server's certificates, in PEM
	AccessErr error  // there is no token, or no CA

	Failed error    // what could not be done, after it was tried
	Done   bool     // the node is out
	Left   []string // what had to stay, each with its reason
}

// Findings are what one pass finds out and the next ones need not ask again.
type Findings struct {
	Where    Place       // where things are on the node
	Runtime  cri.Runtime // as it has answered last, or as the Node object describes it
	Probed   Backends    // what was tried; Backend is "" while none can be used
	ProbeErr error       // no backend can be used
}

// Listing is a directory as it was read.
type Listing struct {
	Files chain.Dir // in which a file that could not be read says why
	Err   error     // the directory was not read; Files is nil
}

// askTimeout is for a question about the node.
const askTimeout = 3 * time.Second

// Observe reads what a pass needs to know, and each thing once. What an uninstallation or a newer
// agent makes superfluous is not read.
func (r *Reconciler) Observe(ctx context.Context, aim Aim) Observation {
	o := Observation{Goal: aim, ID: r.installation()}
	if aim == Out {
		r.observeInstallation(ctx, &o)
		return o
	}
	r.observeAgents(ctx, &o)
	switch {
	case o.Err != nil || o.takenOut():
		return o
	case !o.Newer:
		r.findOut(ctx, &o)
		r.seen, _ = r.fingerprint() // before, so that what others write from here on is news
	}
	o.Known = r.known
	r.readDirectories(&o)
	if todo, _ := Decide(r.cfg, o); todo.Plugin != nil {
		r.observeAccess(ctx, &o)
	}
	return o
}

// observeAgain reads anew what a pass may have changed. The runtime is asked again if its answer
// can decide.
func (r *Reconciler) observeAgain(ctx context.Context, o *Observation) {
	r.seen, _ = r.fingerprint()
	r.readDirectories(o)
	if s := r.cfg.onDisk(*o); s.Ready() && s.Way != chain.Standalone {
		if o.RuntimeErr = r.askRuntime(ctx); o.RuntimeErr != nil {
			r.log.Debug("container runtime not reached", zap.Error(o.RuntimeErr))
		}
	}
	o.Known = r.known
}

// observeAgents reads what other agents and uninstallations have left in the run directory.
func (r *Reconciler) observeAgents(ctx context.Context, o *Observation) {
	if o.Marker, o.Marked, o.Err = r.cfg.Dirs.run().Marked(); o.Err != nil {
		return
	}
	if o.Marked && o.Marker.Concerns(o.ID) && !o.Marker.Withdrawn.IsZero() &&
		r.world.Created != nil {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var err error
		if o.Created, err = r.world.Created(asking); err != nil {
			r.log.Warn("pod creation time not read", zap.Error(err))
		}
	}
	if !o.takenOut() {
		o.Newer = r.superseded()
	}
}

// superseded reports whether a newer agent is in charge, as during an update. One that cannot find
// out goes on: writing what is there already changes nothing.
func (r *Reconciler) superseded() bool {
	member := r.Member()
	if member == nil {
		return false
	}
	newer, err := member.Superseded()
	if err != nil {
		r.log.Warn("other agents not listed", zap.Error(err))
	}
	r.newer = newer && err == nil
	return r.newer
}

// findOut asks what may have changed, or was not known before: what the runtime uses, what the node
// is, what it can.
func (r *Reconciler) findOut(ctx context.Context, o *Observation) {
	o.RuntimeErr = r.askRuntime(ctx)
	if r.known.Runtime.Name == "" || !r.known.Where.Known {
		if object, err := r.nodeObject(ctx); err == nil && object != nil {
			r.settle(r.cfg, object)
		}
	}
	if r.known.Probed.Backend == "" {
		r.known.Probed, r.known.ProbeErr = r.cfg.Plugin.probe(ctx)
	}
	where := r.known.Where
	o.Refused = r.known.Runtime.Refuses(where.Conf.Path, where.binDir())
}

// settle says where things are, by the Node object, which may be nil. What the runtime itself has
// answered stands.
func (r *Reconciler) settle(cfg Settings, object *corev1.Node) {
	r.known.Where = locate(cfg, object)
	if object != nil && r.known.Runtime.Name == "" {
		r.known.Runtime = cri.FromNode(r.known.Where.Declared)
	}
}

// nodeObject returns nil if nobody is to be asked.
func (r *Reconciler) nodeObject(ctx context.Context) (*corev1.Node, error) {
	if r.world.Node == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.world.Node(ctx)
}

// askRuntime asks the runtime anew. One that has not loaded the entry has to be notified.
func (r *Reconciler) askRuntime(ctx context.Context) error {
	runtime, err := r.ask(ctx)
	if err != nil {
		return err
	}
	r.known.Runtime = runtime
	if known, runs := runtime.Runs(names.Plugin); known && !runs {
		r.owed = true
	}
	return nil
}

// observeAccess reads what the plugin asks the API server with while the agent is away.
func (r *Reconciler) observeAccess(ctx context.Context, o *Observation) {
	if r.world.Token == nil {
		return
	}
	onNode := filepath.Join(r.known.Where.Credentials.Dir, names.Token)
	if o.Token, o.AccessErr = r.world.Token(ctx, onNode); o.AccessErr != nil {
		return
	}
	var err error
	if o.CA, err = os.ReadFile(r.cfg.Plugin.CAFile); err != nil {
		o.AccessErr = fmt.Errorf("read --ca-file: %w", err)
	}
}

func (r *Reconciler) readDirectories(o *Observation) {
	where := r.known.Where
	o.Conf.Files, o.Conf.Err = where.Conf.Read()
	o.Multus.Files, o.Multus.Err = where.readMultus()
	_, err := os.Stat(where.Multus.Path)
	o.HasMultus = err == nil
}

// observeInstallation finds out where things are that have to go: what no flag sets is in
// the record of the agent in charge, else it follows from the Node object.
func (r *Reconciler) observeInstallation(ctx context.Context, o *Observation) {
	run := r.cfg.Dirs.run()
	if o.Resumed, o.Err = run.Resumed(r.cfg.Withdrawn); o.Err != nil || o.Resumed {
		return
	}
	there, err := installation.Read(run.Path)
	if err != nil {
		r.log.Warn("installation record not read", zap.Error(err))
	}
	o.ID = cmp.Or(r.cfg.InstallID, there.ID, r.account())
	if o.Marker, o.Marked, err = run.Marked(); err != nil {
		o.Marked = false // a new one is written over it
	}
	cfg := r.cfg
	if cfg.Dirs.Platform == autoPlatform {
		cfg.Dirs.Conf, cfg.Dirs.Bin = cmp.Or(cfg.Dirs.Conf, there.ConfDir),
			cmp.Or(cfg.Dirs.Bin, there.BinDir)
		cfg.Dirs.Multus = cmp.Or(cfg.Dirs.Multus, there.Multus)
		cfg.RuntimeSocket = cmp.Or(cfg.RuntimeSocket, there.Socket)
	}
	var object *corev1.Node
	if cfg.Dirs.Platform == autoPlatform && (cfg.Dirs.Conf == "" || cfg.Dirs.Bin == "") {
		object, _ = r.nodeObject(ctx) // without it the commonest of platforms is as good as any
	}
	r.settle(cfg, object)
	o.RuntimeErr = r.askRuntime(ctx)
	o.Known = r.known
}
