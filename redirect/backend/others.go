package backend

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// OtherRules names a rule of a mesh in the calling thread's namespace that the backend of a name
// would not replace: of one that was configured when the namespace was programmed, or of another
// tool; "" is none. Beside it ours would redirect what is redirected already.
func OtherRules(ctx context.Context, name string) (string, error) {
	chains, err := traces.Chains()
	if err != nil {
		return "", err
	}
	for _, c := range chains {
		ofNFT := c.Family == "inet" && c.Table == nftables.TableName
		ofIptables := !ofNFT && c.Family != "inet"
		if name == redirect.NFTables && ofNFT || name == redirect.IptablesNFT && ofIptables {
			continue
		}
		return c.String(), nil
	}
	if name == redirect.IptablesLegacy {
		return "", nil
	}
	return legacyRules(ctx)
}

// legacyRules looks into the tables of legacy iptables, if there are any and a program that reads
// them: none of ours is without.
func legacyRules(ctx context.Context) (string, error) {
	used := false
	for _, f := range redirect.Families {
		tables, err := traces.LegacyTables(f)
		// EPERM is of a user namespace of its own, where legacy rules cannot be ours.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return "", err
		}
		used = used || len(tables) > 0
	}
	if !used {
		return "", nil
	}
	legacy, err := iptables.Find(iptables.Legacy)
	if err != nil {
		return "", nil //nolint:nilerr // what is not there has written nothing
	}
	chains, err := legacy.MeshChains(ctx)
	return strings.Join(chains, ", "), err
}
