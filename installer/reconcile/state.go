package reconcile

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// Reason is one of a closed set of words that say what a node's state is: those of package chain,
// and these. To add one: a constant here, its meaning below, a line of Decide that gives it, and a
// row of TestEveryReason.
type Reason string

// The reasons that are not package chain's.
const (
	Effective    = Reason(chain.Effective)
	Superseded   = Reason("superseded")
	Starting     = Reason("starting")
	Uninstalled  = Reason("uninstalled")
	NoNode       = Reason("no_node")
	NoBackend    = Reason("no_backend")
	BadSettings  = Reason("bad_settings")
	BadBinary    = Reason("binary")
	BadDisk      = Reason("disk")
	BadMount     = Reason("deleted")
	BadPlace     = Reason("directories")
	NotLoaded    = Reason("not_loaded")
	OtherRuntime = Reason("other_runtime")
	StillLoaded  = Reason("still_loaded")
	NoAccess     = Reason("credentials")
)

// Meanings are for the reference page: each reason has one.
var Meanings = map[Reason]string{
	Effective:   "pods start redirected",
	Superseded:  "a newer agent on the node is in charge, as during an update",
	Starting:    "no pass has ended yet",
	Uninstalled: "the node was taken out",
	NoNode: "the kind of node is not known yet: neither the API server nor the container " +
		"runtime has answered",
	NoBackend:   "nothing on the node can program rules",
	BadSettings: "the settings make no entry that the plugin could read",
	BadBinary:   "the plugin could not be put into the directory of the CNI plugins",
	BadDisk:     "a directory could not be read or written",
	BadMount: "a directory was deleted on the node after it was mounted; the agent ends, so " +
		"that its container is started with a new mount",
	BadPlace:  "the container runtime uses other directories",
	NotLoaded: "the entry is in the file, and the container runtime has not loaded it",
	OtherRuntime: "another container runtime than the one that runs the node's pods answers at " +
		"the socket that is asked",
	StillLoaded: "the entry was taken out of the file, and the container runtime still has it",
	NoAccess: "the entry is in the chain, but the plugin could not ask the API server while " +
		"the agent is away",

	Reason(chain.Absent):     "the entry is not in the chain; the next pass mends it",
	Reason(chain.Outdated):   "the entry is another one than configured; the next pass mends it",
	Reason(chain.Misplaced):  "the entry is not the last; the next pass mends it",
	Reason(chain.Repeated):   "the entry is there more than once; the next pass mends it",
	Reason(chain.Stale):      "our copy is not of what is there now; the next pass mends it",
	Reason(chain.NoNetwork):  "there is no network configuration yet",
	Reason(chain.Unreadable): "the network configuration cannot be read",
	Reason(chain.Broken): "the network configuration does not parse, perhaps since it is " +
		"being written",
	Reason(chain.Empty):     "the network configuration has no plugin to be chained to",
	Reason(chain.Version):   "the network's CNI version knows no chains, or is too new",
	Reason(chain.OtherMesh): "another mesh's redirect plugin is in the chain",
	Reason(chain.Taken):     "a file name that is needed is somebody else's",
	Reason(chain.Shadowed):  "another file would be loaded in spite of ours",
	Reason(chain.NoDropIns): "the way dropin is not open with this runtime or network",
	Reason(chain.Multus):    "the way owned is not open with Multus",
	Reason(chain.ManyNetworks): "the way owned is not open where the container runtime loads " +
		"several networks",
	Reason(chain.NoMultus): "the way standalone needs Multus",
	Reason(chain.BadEntry): "the settings make no entry",
}

// Camel is the reason as the API server wants it in a condition: no_network becomes NoNetwork.
func (r Reason) Camel() string {
	var b strings.Builder
	for word := range strings.SplitSeq(string(r), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// Reasons lists them all, first those with which a node is ready.
func Reasons() []Reason {
	first := []Reason{Effective, Superseded, Starting, Uninstalled}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(Meanings)), func(r Reason) bool {
		return slices.Contains(first, r)
	})
	return append(first, rest...)
}

// State is what a node is in, by what is on its disk and what its runtime says.
type State struct {
	Why  Reason    // one of Reasons
	Text string    // a sentence: what is wrong, and what to do
	Way  chain.Way // in which the entry is there; "" if it is not
	File string    // the one that the runtime loads
	Out  bool      // an uninstallation has taken the node out, which is all that was asked for
}

// Ready reports whether the program has done its work: pods start redirected, as far as this agent
// is to say, or the node is out.
func (s State) Ready() bool { return s.Why == Effective || s.Why == Superseded || s.Out }

// InCharge reports whether the agent decides about the node's pods: the node was not taken out, no
// newer agent is in its place, and no other mesh's plugin is in the chain. As long as nothing is
// known of that, it does.
func (s State) InCharge() bool {
	return s.Why != Uninstalled && s.Why != Superseded && s.Why != Reason(chain.OtherMesh)
}

// Failure is an error that decides about the state.
type Failure struct {
	Why Reason // the state's
	Err error  // never nil; its text becomes the state's
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f *Failure) Unwrap() error { return f.Err }

// reasonOf is what an error says about the state.
func reasonOf(err error) Reason {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Why
	}
	if r, ok := errors.AsType[*chain.Refusal](err); ok {
		return Reason(r.Reason)
	}
	return diskFailure(err).Why
}

// diskFailure is an error about the disk.
func diskFailure(err error) *Failure {
	if errors.Is(err, node.ErrDeleted) {
		return &Failure{BadMount, err}
	}
	return &Failure{BadDisk, err}
}

// failed is the state after an error about which nothing else is known.
func failed(err error) State { return State{Why: reasonOf(err), Text: err.Error()} }
