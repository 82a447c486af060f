package chain

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/containernetworking/cni/libcni"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// Way is a way into the chain.
type Way string

// The ways.
const (
	Auto   Way = "auto"   // DropIn where it is open, Standalone with Multus, else Inline
	DropIn Way = "dropin" // a file that the runtime merges into the primary's network
	// a list of our own, which sorts first: a copy of the primary, and our entry
	Owned  Way = "owned"
	Inline Way = "inline" // our entry in the primary
	// a network of our own in Multus' directory, see InstallStandalone
	Standalone Way = "standalone"
)

// Spec says what shall be.
type Spec struct {
	Way Way // Auto if empty
	// the runtime is proven or known to: containerd from 2.1 on, CRI-O by its libcni
	LoadsDropIns bool
	// the runtime loads every network of the directory, or several, not the first alone
	ManyNetworks bool
	// the runtime passes over a file that it cannot load, and takes the next: CRI-O
	SkipsBroken bool
	Entry       []byte // our entry: a JSON object of our type
	// the NetworkAttachmentDefinition; "istio-cni" if empty, which Istio's injector asks for
	Standalone string
}

// normal fills in what is left out.
func (w Spec) normal() (Spec, error) {
	conf, err := libcni.NetworkPluginConfFromBytes(w.Entry)
	if err != nil {
		return w, refuse(BadEntry, "", "our entry: %v", err)
	}
	if p := conf.Network; p.Type != names.Plugin || p.Name != "" || p.CNIVersion != "" {
		return w, refuse(BadEntry, "", "our entry: type %q, name %q, cniVersion %q: want %q, and "+
			"no others", p.Type, p.Name, p.CNIVersion, names.Plugin)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, w.Entry); err != nil {
		return w, refuse(BadEntry, "", "our entry: %v", err)
	}
	w.Way, w.Entry, w.Standalone = cmp.Or(w.Way, Auto), b.Bytes(), cmp.Or(w.Standalone, "istio-cni")
	return w, nil
}

// choose returns the way into a network, or why the configured one is not open.
func (w Spec) choose(n *network) (Way, error) {
	name := n.file.Name
	way := w.Way
	if way == Auto {
		way = w.auto(n)
	}
	switch {
	case way == Standalone && !n.multus():
		return "", refuse(NoMultus, name, "%s does not begin with Multus: a standalone "+
			"configuration would be used by nobody; configure another way", name)
	case way == Standalone:
		return way, nil
	case way == DropIn && !w.LoadsDropIns:
		return "", refuse(NoDropIns, name, "%s: the runtime is not known to load drop-ins: "+
			"configure another way, or update it", name)
	case way == DropIn && (!n.list || n.inlinedOnly):
		return "", refuse(NoDropIns, name, "%s takes no drop-ins: it is no list or has "+
			"loadOnlyInlinedPlugins; configure another way", name)
	case way == Owned && n.multus():
		return "", refuse(Multus, name, "%s begins with Multus, which would delegate to a copy "+
			"of itself: use the standalone way", name)
	case way == Owned && w.ManyNetworks:
		return "", refuse(ManyNetworks, name, "the runtime loads more than one network, so that "+
			"a copy of %s would be set up in addition to it: "+
			"configure another way, or max_conf_num 1 for the runtime", name)
	case way == Owned && name < ownedName:
		return "", refuse(Shadowed, name, "%s sorts before %s: configure another way", name,
			ownedName)
	case way != DropIn && way != Owned && way != Inline:
		return "", refuse(BadEntry, "", "way %q: want auto, dropin, owned, inline or standalone",
			way)
	case way != DropIn && len(n.inline) == 0:
		return "", refuse(Empty, name, "%s has no plugins but drop-ins: nothing in it to be "+
			"chained to; configure the dropin way", name)
	}
	return way, n.chainable()
}

func (w Spec) auto(n *network) Way {
	switch {
	case n.multus():
		return Standalone
	case w.LoadsDropIns && n.list && !n.inlinedOnly:
		return DropIn
	}
	return Inline
}
