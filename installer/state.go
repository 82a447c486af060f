package main

import (
	"errors"
	"maps"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/installer/chain"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
)

// reason is one of a closed set of words that say what a node's state is: those of package chain,
// and these.
type reason string

const (
	effective    = reason(chain.Effective)
	superseded   = reason("superseded")
	starting     = reason("starting")
	uninstalled  = reason("uninstalled")
	noNode       = reason("no_node")
	noBackend    = reason("no_backend")
	badSettings  = reason("bad_settings")
	badBinary    = reason("binary")
	badDisk      = reason("disk")
	badMount     = reason("deleted")
	badPlace     = reason("directories")
	notLoaded    = reason("not_loaded")
	otherRuntime = reason("other_runtime")
	stillLoaded  = reason("still_loaded")
	noAccess     = reason("credentials")
)

// meanings are for the reference page.
var meanings = map[reason]string{
	effective:    "pods start redirected",
	superseded:   "a newer agent on the node is in charge, as during an update",
	starting:     "no pass has ended yet",
	uninstalled:  "the node was taken out",
	noNode:       "the kind of node is not known yet: neither the API server nor the container runtime has answered",
	noBackend:    "nothing on the node can program rules",
	badSettings:  "the settings make no entry that the plugin could read",
	badBinary:    "the plugin could not be put into the directory of the CNI plugins",
	badDisk:      "a directory could not be read or written",
	badMount:     "a directory was deleted on the node after it was mounted; the agent ends, so that its container is started with a new mount",
	badPlace:     "the container runtime uses other directories",
	notLoaded:    "the entry is in the file, and the container runtime has not loaded it",
	otherRuntime: "another container runtime than the one that runs the node's pods answers at the socket that is asked",
	stillLoaded:  "the entry was taken out of the file, and the container runtime still has it",
	noAccess:     "the entry is in the chain, but the plugin could not ask the API server while the agent is away",

	reason(chain.Absent):       "the entry is not in the chain; the next pass mends it",
	reason(chain.Outdated):     "the entry is another one than configured; the next pass mends it",
	reason(chain.Misplaced):    "the entry is not the last; the next pass mends it",
	reason(chain.Repeated):     "the entry is there more than once; the next pass mends it",
	reason(chain.Stale):        "our copy is not of what is there now; the next pass mends it",
	reason(chain.NoNetwork):    "there is no network configuration yet",
	reason(chain.Unreadable):   "the network configuration cannot be read",
	reason(chain.Broken):       "the network configuration does not parse, perhaps since it is being written",
	reason(chain.Empty):        "the network configuration has no plugin to be chained to",
	reason(chain.Version):      "the network's CNI version knows no chains, or is too new",
	reason(chain.OtherMesh):    "another mesh's redirect plugin is in the chain",
	reason(chain.Taken):        "a file name that is needed is somebody else's",
	reason(chain.Shadowed):     "another file would be loaded in spite of ours",
	reason(chain.NoDropIns):    "the way dropin is not open with this runtime or network",
	reason(chain.Multus):       "the way owned is not open with Multus",
	reason(chain.ManyNetworks): "the way owned is not open where the container runtime loads several networks",
	reason(chain.NoMultus):     "the way standalone needs Multus",
	reason(chain.BadEntry):     "the settings make no entry",
}

// reasons lists them all, for the metric: first those with which a node is ready.
func reasons() []reason {
	first := []reason{effective, superseded, starting, uninstalled}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(meanings)), func(r reason) bool { return slices.Contains(first, r) })
	return append(first, rest...)
}

// state is what a node is in: evaluated, after each pass, from what is on the disk and what the
// runtime says.
type state struct {
	reason reason
	text   string // a sentence: what is wrong, and what to do
	way    chain.Way
	file   string // the primary
	out    bool   // an uninstallation has taken the node out, which is all that was asked for
}

// ready reports whether the program has done its work: pods start redirected, as far as this
// agent is to say, or the node is out.
func (s state) ready() bool { return s.reason == effective || s.reason == superseded || s.out }

// trouble is an error that decides about the state.
type trouble struct {
	reason reason
	error
}

func (t *trouble) Unwrap() error { return t.error }

// reasonOf is what an error says about the state.
func reasonOf(err error) reason {
	if t, ok := errors.AsType[*trouble](err); ok {
		return t.reason
	}
	if r, ok := errors.AsType[*chain.Refusal](err); ok {
		return reason(r.Reason)
	}
	return disk(err).reason
}

// disk is an error about the disk.
func disk(err error) *trouble {
	if errors.Is(err, node.ErrDeleted) {
		return &trouble{badMount, err}
	}
	return &trouble{badDisk, err}
}
