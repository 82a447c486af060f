//go:build linux

package nftables

import (
	"context"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

const probeTable = "sidecar-cni-probe"

// Probe tries out, one by one, what the rules may need, and names what this kernel lacks. It works
// in a table of its own in the namespace of the calling thread, which it removes again; no packet
// meets its rules, since no hook leads to them. What ctx leaves no time for counts as lacking.
func Probe(ctx context.Context) []redirect.Lack {
	s, err := dial()
	if err != nil {
		return []redirect.Lack{{Feature: "nftables", Module: "nf_tables", Cause: explain(err)}}
	}
	defer s.Close()
	if err := s.try(ctx, &table{name: probeTable}); err != nil {
		return []redirect.Lack{{Feature: "nftables", Module: "nf_tables", Cause: explain(err)}}
	}
	var lacks []redirect.Lack
	for _, b := range []struct {
		table   redirect.Table
		feature string
		module  string
	}{
		{redirect.NAT, "address translation for both families in one table, which Linux has " +
			"since 5.2", "nft_chain_nat"},
		{redirect.Mangle, "re-routing by marks", "nf_tables"},
		{redirect.Raw, "rules ahead of connection tracking", "nf_tables"},
	} {
		hook := bases[b.table][redirect.Output]
		if err := s.try(ctx, &table{name: probeTable,
			chains: []*chain{{name: "probe", base: &hook}}}); err != nil {
			lacks = append(lacks, redirect.Lack{Feature: b.feature, Module: b.module, Cause: err})
		}
	}
	return append(append(lacks, s.tryAll(ctx, redirect.Features())...), routing.Probe()...)
}

// Modules lists what the rules of any pod may need of a kernel, each module once.
func Modules() []redirect.Module {
	all := []redirect.Module{{Name: "nf_tables", For: "nftables"},
		{Name: "nft_chain_nat", For: "the table nat"}}
	for _, f := range redirect.Features() {
		var tr translator
		for name := range strings.SplitSeq(tr.rule(f.Rule)[0].modules(), ", ") {
			is := func(m redirect.Module) bool { return m.Name == name }
			if !slices.ContainsFunc(all, is) {
				all = append(all, redirect.Module{Name: name, For: f.Name})
			}
		}
	}
	return all
}

func (s socket) tryAll(ctx context.Context, features []redirect.Feature) []redirect.Lack {
	var lacks []redirect.Lack
	for _, f := range features {
		var tr translator
		rules := tr.rule(f.Rule)
		if err := s.try(ctx, &table{name: probeTable,
			chains: []*chain{{name: "probe", rules: rules}}}); err != nil {
			lacks = append(lacks, redirect.Lack{Feature: f.Name, Module: rules[0].modules(),
				Cause: err})
		}
	}
	return lacks
}

// try writes a table and removes it. What an earlier probe left behind, killed half-way, is
// replaced.
func (s socket) try(ctx context.Context, t *table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.replace(t); err != nil {
		return err
	}
	return s.transact([]message{t.deletion()})
}
