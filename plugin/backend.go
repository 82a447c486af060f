package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/contract/netconf"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/traces"
)

// backend writes rules into the network namespace of the calling thread, and compares.
type backend interface {
	// Apply returns a function that takes back what it did, given the rules that it may have
	// replaced, and what it could not do but need not fail for.
	Apply(context.Context, redirect.Ruleset) (undo func(earlier *redirect.Ruleset), warnings []string, err error)
	Verify(context.Context, redirect.Ruleset) ([]redirect.Problem, error)
}

// nft is nftables, through netlink.
type nft struct{}

func (nft) Apply(
	ctx context.Context, rs redirect.Ruleset,
) (undo func(earlier *redirect.Ruleset), warnings []string, err error) {
	undo, err = nftables.Apply(ctx, rs)
	return undo, nil, err
}

func (nft) Verify(ctx context.Context, rs redirect.Ruleset) ([]redirect.Problem, error) {
	return nftables.Verify(ctx, rs)
}

// variant is one of iptables, which finds the earlier rules in the kernel.
type variant struct{ *iptables.Tables }

func (v variant) Apply(
	ctx context.Context, rs redirect.Ruleset,
) (undo func(earlier *redirect.Ruleset), warnings []string, err error) {
	restore, warnings, err := v.Tables.Apply(ctx, rs)
	return func(*redirect.Ruleset) { restore() }, warnings, err
}

// findBackend returns what a name of the configuration stands for.
func findBackend(name string) (backend, error) {
	switch name {
	case netconf.NFTables:
		return nft{}, nil
	case netconf.IptablesNFT, netconf.IptablesLegacy:
		tables, err := iptables.Find(iptables.Variant(strings.TrimPrefix(name, "iptables-")))
		return variant{tables}, err
	}
	return nil, fmt.Errorf("find backend %q: there is none of that name", name)
}

// otherRules names a rule of a mesh in the calling thread's namespace that is not the backend's: of
// one that was configured when the namespace was programmed, or of another tool. Beside it ours
// would redirect what is redirected already.
func otherRules(ctx context.Context, backend string) (string, error) {
	chains, err := traces.Chains()
	if err != nil {
		return "", err
	}
	for _, c := range chains {
		ofNFT := c.Family == "inet" && c.Table == nftables.TableName
		ofIptables := !ofNFT && c.Family != "inet"
		if backend == netconf.NFTables && ofNFT || backend == netconf.IptablesNFT && ofIptables {
			continue
		}
		return c.String(), nil
	}
	if backend == netconf.IptablesLegacy {
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
		if err != nil && !errors.Is(err, fs.ErrPermission) { // a user namespace of its own, where legacy rules cannot be ours
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
