package chain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// OtherMeshes are the plugins that redirect, too: two of us in a pod would send its traffic in
// circles.
var OtherMeshes = []string{"istio-cni", "linkerd-cni", "kuma-cni", "consul-cni"}

// multusTypes delegate to the other networks of the directory: a copy of them would delegate to
// itself.
var multusTypes = []string{"multus", "multus-shim"}

// network is what the runtime makes of a file.
type network struct {
	file        File
	list        bool // with a list of plugins, not a single one
	name        string
	version     string
	inlinedOnly bool
	inline      []entry
	merged      []entry // from drop-ins
}

// entry is a plugin of a network.
type entry struct {
	kind string
	data []byte
	file string
}

func (n *network) chain() []entry { return slices.Concat(n.inline, n.merged) }

func (n *network) multus() bool {
	chain := n.chain()
	return len(chain) > 0 && slices.Contains(multusTypes, chain[0].kind)
}

func (e entry) ours() bool { return e.kind == names.Plugin }

// load reads a network as the runtime does, with its drop-ins if the runtime has those.
func (t tree) load(name string, dropIns bool) (*network, error) {
	n, err := t[name].parse()
	if err != nil || !n.list || n.inlinedOnly || !dropIns {
		return n, err
	}
	for _, name := range t.dropIns(n.name) {
		e, err := t[name].plugin()
		if err != nil {
			return nil, err
		}
		n.merged = append(n.merged, e)
	}
	return n, nil
}

func (f File) parse() (*network, error) {
	if f.Err != nil {
		return nil, f.unreadable()
	}
	n := &network{file: f, list: isList(f.Name)}
	var err error
	if n.list {
		err = n.readList()
	} else {
		err = n.readSingle()
	}
	if err != nil {
		return nil, f.broken(err)
	}
	if err := utils.ValidateNetworkName(n.name); err != nil {
		return nil, refuse(Broken, f.Name,
			"%s: network name %q: %s: the runtime starts no pod with it", f.Name, n.name, err.Msg)
	}
	return n, nil
}

func (n *network) readList() error {
	list, err := libcni.NetworkConfFromBytes(n.file.Data)
	if err != nil {
		return err
	}
	n.name, n.version, n.inlinedOnly = list.Name, list.CNIVersion, list.LoadOnlyInlinedPlugins
	if len(list.Plugins) == 0 {
		return nil
	}
	spans, err := plugins(n.file.Data)
	if err != nil {
		return err
	}
	if len(spans) != len(list.Plugins) {
		return fmt.Errorf("have %d plugins, libcni has %d", len(spans), len(list.Plugins))
	}
	for i, p := range list.Plugins {
		n.inline = append(n.inline,
			entry{kind: p.Network.Type, data: spans[i].of(n.file.Data), file: n.file.Name})
	}
	return nil
}

func (n *network) readSingle() error {
	conf, err := libcni.NetworkPluginConfFromBytes(n.file.Data)
	if err != nil {
		return err
	}
	n.name, n.version = conf.Network.Name, conf.Network.CNIVersion
	n.inline = []entry{{kind: conf.Network.Type, data: n.file.Data, file: n.file.Name}}
	// The runtime makes a list of it, for which it has to be an object whatever its fields.
	return json.Unmarshal(n.file.Data, &map[string]any{})
}

// plugin reads a drop-in.
func (f File) plugin() (entry, error) {
	if f.Err != nil {
		return entry{}, f.unreadable()
	}
	conf, err := libcni.NetworkPluginConfFromBytes(f.Data)
	if err != nil {
		return entry{}, f.broken(err)
	}
	return entry{kind: conf.Network.Type, data: f.Data, file: f.Name}, nil
}

// carriesUs reports whether our entry is in a file that the runtime could load.
func (f File) carriesUs() bool {
	if isDropInOfOurs(f.Name) {
		return true
	}
	if !isConf(f.Name) {
		return false
	}
	n, err := f.parse()
	return err == nil && slices.ContainsFunc(n.inline, entry.ours)
}

func (f File) unreadable() error {
	return refuse(Unreadable, f.Name, "read %s: %v: waiting until it can be read", f.Name, f.Err)
}

func (f File) broken(err error) error {
	return refuse(Broken, f.Name, "load %s: %v: waiting for its writer to finish or mend it; the "+
		"runtime may have no network meanwhile", f.Name, err)
}

// chainable says why no entry of ours can run in a network.
func (n *network) chainable() error {
	chain, name := n.chain(), n.file.Name
	foreign := slices.IndexFunc(n.merged, entry.ours)
	switch {
	case len(chain) == 0:
		return refuse(Empty, name, "%s has no plugins: nothing to be chained to", name)
	case !slices.ContainsFunc(chain, func(e entry) bool { return !e.ours() }):
		return refuse(Empty, name, "%s has no plugin but ours: remove it, or let the network "+
			"plugin write it anew", name)
	case foreign >= 0:
		file := n.merged[foreign].file
		return refuse(Taken, file, "%s has an entry of type %s that is somebody else's: remove it",
			file, names.Plugin)
	case !slices.Contains(names.CNIVersions, n.version):
		return refuse(Version, name, "%s has cniVersion %q: want one of %q to chain a plugin; "+
			"set it in the network plugin's configuration", name, n.version, names.CNIVersions)
	}
	return nil
}

// mesh says that another mesh's plugin redirects in this network.
func (n *network) mesh() error {
	for _, e := range n.chain() {
		if slices.Contains(OtherMeshes, e.kind) {
			return refuse(OtherMesh, e.file, "%s runs %s, another mesh's redirect plugin: "+
				"nothing is written; uninstall %s, or this plugin", e.file, e.kind, e.kind)
		}
	}
	return nil
}

// dropIn is the name of our drop-in of the network.
func (n *network) dropIn() string {
	if n == nil {
		return ""
	}
	return n.name + "/" + DropInName
}
