package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/legacy"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// MeshChain is a chain in a namespace whose name is that of a mesh's.
type MeshChain struct {
	Backend string // in whose place it is, one of redirect.Backends; "": none of ours writes there
	name    string
}

func (c MeshChain) String() string { return c.name }

// MeshChains lists those of the calling thread's namespace. No program is run.
func MeshChains() ([]MeshChain, error) {
	chains, err := traces.Chains()
	if err != nil {
		return nil, err
	}
	var all []MeshChain
	for _, c := range chains {
		one := MeshChain{name: c.String()}
		switch {
		case !strings.HasPrefix(c.Name, traces.MeshChains):
		case c.Family == "inet" && c.Table == nftables.TableName:
			one.Backend = redirect.NFTables
		case c.Family == "ip" || c.Family == "ip6":
			one.Backend = redirect.IptablesNFT
		}
		all = append(all, one)
	}
	old, err := legacyChains()
	return append(all, old...), err
}

// legacyChains reads the tables of legacy iptables that there are.
func legacyChains() ([]MeshChain, error) {
	var all []MeshChain
	for _, l := range legacy.Layouts {
		tables, err := traces.LegacyTables(l.Family)
		// EPERM is of a user namespace of its own, where legacy rules cannot be ours.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		for _, name := range tables {
			table, err := l.Read(name)
			var entries []legacy.Entry
			if err == nil {
				entries, err = table.Entries()
			}
			if err != nil {
				return nil, fmt.Errorf("read legacy table %s %s: %w", l.Name, name, err)
			}
			for _, e := range entries {
				chain, begins := e.Begins()
				if begins && strings.HasPrefix(chain, traces.MeshChains) {
					all = append(all, MeshChain{redirect.IptablesLegacy,
						fmt.Sprintf("chain %s of legacy table %s %s", chain, l.Name, name)})
				}
			}
		}
	}
	return all, nil
}

// OtherRules names a chain of a mesh in the calling thread's namespace that the backend of a name
// would not replace: of one that was configured when the namespace was programmed, or of another
// tool; "" is none. Beside it ours would redirect what is redirected already.
func OtherRules(name string) (string, error) {
	chains, err := MeshChains()
	if err != nil {
		return "", err
	}
	other := func(c MeshChain) bool { return c.Backend != name }
	if i := slices.IndexFunc(chains, other); i >= 0 {
		return chains[i].String(), nil
	}
	return "", nil
}
