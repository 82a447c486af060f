package nftables

import (
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

const probeTable = "sidecar-cni-probe"

// Probe tries out, one by one, what the rules may need, and names what this kernel lacks. It works in a table of its own
// in the namespace of the calling thread, which it removes again; no packet meets its rules, since no hook leads to them.
func Probe() []redirect.Lack {
	w, err := dial()
	if err != nil {
		return []redirect.Lack{{Feature: "nftables", Module: "nf_tables", Cause: explain(err)}}
	}
	defer w.close()
	if err := w.try(&table{name: probeTable}); err != nil {
		return []redirect.Lack{{Feature: "nftables", Module: "nf_tables", Cause: explain(err)}}
	}
	var lacks []redirect.Lack
	for _, b := range []struct {
		table   redirect.Table
		feature string
		module  string
	}{
		{redirect.NAT, "address translation for both families in one table, which Linux has since 5.2", "nft_chain_nat"},
		{redirect.Mangle, "re-routing by marks", "nf_tables"},
		{redirect.Raw, "rules ahead of connection tracking", "nf_tables"},
	} {
		hook := bases[b.table][redirect.Output]
		if err := w.try(&table{name: probeTable, chains: []*chain{{name: "probe", base: &hook}}}); err != nil {
			lacks = append(lacks, redirect.Lack{Feature: b.feature, Module: b.module, Cause: err})
		}
	}
	return append(append(lacks, w.tryAll(redirect.Features())...), routing.Probe()...)
}

func (w *wire) tryAll(features []redirect.Feature) []redirect.Lack {
	var lacks []redirect.Lack
	for _, f := range features {
		var tr translator
		t := &table{name: probeTable, chains: []*chain{{name: "probe", rules: tr.rule(f.Rule)}}}
		if err := w.try(t); err != nil {
			lacks = append(lacks, redirect.Lack{Feature: f.Name, Module: f.Module(redirect.DialectNFTables), Cause: err})
		}
	}
	return lacks
}

// try writes a table and removes it. What an earlier probe left behind, killed half-way, is replaced.
func (w *wire) try(t *table) error {
	if err := w.replace(t); err != nil {
		return err
	}
	return w.transact([]message{t.deletion()})
}
