// Package backend is what writes rules into a kernel and reads them back: nftables by netlink, or a
// variant of the host's iptables, found by the names of package redirect.
//
//	rules, err := backend.Find(backend.For(conf.Backend, n))
//	err = n.Do(func() error {
//		undo, warnings, err := rules.Apply(ctx, redirect.Compile(policy))
//		...
//	})
//
// Be aware: all that a Backend does it does in the network namespace of the calling thread. What
// leads into a pod's is package podns.
package backend

import (
	"context"
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
)

// Backend writes rules and compares. Between netlink's messages, or as soon as a program can be
// ended, it gives up when its context ends.
type Backend interface {
	// Apply writes a ruleset in place of an earlier one of ours; packets meet the one or the other.
	// A failure leaves what was there. Where it went well, undo takes back what this call did, for
	// a caller that fails later; earlier is what the namespace had of ours before, nil if that is
	// not known. The warnings are about traffic that cannot be captured.
	Apply(ctx context.Context,
		rs redirect.Ruleset) (undo func(earlier *redirect.Ruleset), warnings []string, err error)
	// Verify names every difference to what the kernel has, and changes nothing.
	Verify(ctx context.Context, rs redirect.Ruleset) ([]redirect.Problem, error)
	// Remove takes away what Apply writes. What is not there is not missed.
	Remove(ctx context.Context, rs redirect.Ruleset) error
	// Probe tries out what the rules of any pod may need, and names what is lacking. It leaves
	// nothing behind, and no packet meets its rules.
	Probe(ctx context.Context) []redirect.Lack
}

// Find returns the backend of a name, one of redirect.Backends. Of a variant of iptables it looks
// for the programs, so it is called where the host's are, and runs none.
func Find(name string) (Backend, error) {
	switch name {
	case redirect.NFTables:
		return nft{}, nil
	case redirect.IptablesNFT, redirect.IptablesLegacy:
		tables, err := iptables.Find(iptables.Variant(name))
		return xtables{tables}, err
	}
	return nil, fmt.Errorf("find backend %q: there is none of that name", name)
}

// RunsPrograms reports whether the backend of a name runs programs of the host.
func RunsPrograms(name string) bool { return name != redirect.NFTables }

// Modules lists what the backend of a name may need of a kernel, for the rules of any pod.
func Modules(name string) []redirect.Module {
	if name == redirect.NFTables {
		return nftables.Modules()
	}
	return iptables.Modules(iptables.Variant(name))
}

// For returns the name of the backend for a namespace, given the configured one's: iptables' owner
// match is refused in that of another user namespace.
func For(configured string, n *podns.Namespace) string {
	if configured != redirect.NFTables && n.Foreign() {
		return redirect.NFTables
	}
	return configured
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

func (nft) Remove(ctx context.Context, rs redirect.Ruleset) error {
	return nftables.Remove(ctx, rs)
}

func (nft) Probe(ctx context.Context) []redirect.Lack { return nftables.Probe(ctx) }

// xtables is a variant of iptables, which finds the earlier rules in the kernel.
type xtables struct{ *iptables.Tables }

func (x xtables) Apply(
	ctx context.Context, rs redirect.Ruleset,
) (undo func(earlier *redirect.Ruleset), warnings []string, err error) {
	restore, warnings, err := x.Tables.Apply(ctx, rs)
	return func(*redirect.Ruleset) { restore() }, warnings, err
}
