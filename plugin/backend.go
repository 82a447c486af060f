package main

import (
	"context"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/plugin/netconf"
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
)

// backend writes rules into the network namespace of the calling thread, and compares.
type backend interface {
	Apply(redirect.Ruleset) error
	Verify(redirect.Ruleset) ([]redirect.Problem, error)
	Remove(redirect.Ruleset) error
}

// nft is nftables, through netlink.
type nft struct{}

func (nft) Apply(rs redirect.Ruleset) error                        { return nftables.Apply(rs) }
func (nft) Verify(rs redirect.Ruleset) ([]redirect.Problem, error) { return nftables.Verify(rs) }
func (nft) Remove(rs redirect.Ruleset) error                       { return nftables.Remove(rs) }

// findBackend returns what a name of the configuration stands for. The programs of iptables end with the context.
func findBackend(ctx context.Context, name string) (backend, error) {
	switch name {
	case netconf.NFTables:
		return nft{}, nil
	case netconf.IptablesNFT:
		return iptables.Find(ctx, iptables.NFT)
	case netconf.IptablesLegacy:
		return iptables.Find(ctx, iptables.Legacy)
	}
	return nil, fmt.Errorf("find backend %q: there is none of that name", name)
}
