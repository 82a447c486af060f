//go:build linux

package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

const probeChain = "SIDECAR_CNI_PROBE"

// Probe tries out, one by one, what the rules may need, and names what this host and kernel lack.
// It works in a chain of its own in the namespace of the calling thread, which it removes again and
// to which nothing jumps.
func (t *Tables) Probe(ctx context.Context) []redirect.Lack {
	lacks := t.lackOfIPv6()
	for _, f := range t.families() {
		if err := t.checkVersion(f); err != nil {
			return append(lacks, redirect.Lack{Feature: "usable iptables for " + f.String(),
				Module: "ip_tables", Cause: err})
		}
		t.clean(ctx, f) // what an earlier probe left behind, killed half-way
		for _, feature := range redirect.Features() {
			if err := t.try(ctx, feature, f); err != nil {
				lacks = append(lacks, redirect.Lack{
					Feature: fmt.Sprintf("%s for %s", feature.Name, f),
					Module:  modules(feature.Rule, f), Cause: err,
				})
			}
		}
	}
	return append(lacks, routing.Probe()...)
}

// checkVersion runs the program: 1.8 is the first that says which variant it is.
func (t *Tables) checkVersion(f redirect.Family) error {
	protocol := goiptables.ProtocolIPv4
	if f == redirect.IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	ipt, err := goiptables.New(goiptables.Path(t.tools[f].iptables), goiptables.IPFamily(protocol))
	if err != nil {
		return err
	}
	if major, minor, patch := ipt.GetIptablesVersion(); major == 1 && minor < 8 {
		return fmt.Errorf("%s is version %d.%d.%d: want 1.8 or later", t.tools[f].iptables, major,
			minor, patch)
	}
	return nil
}

func (t *Tables) try(ctx context.Context, feature redirect.Feature, f redirect.Family) error {
	rules := redirect.Ruleset{Chains: []redirect.Chain{{
		Table: feature.Table, Name: probeChain, Rules: []redirect.Rule{feature.Rule},
	}}}
	if err := t.restore(ctx, f, deletions{}.replacedBy(creationsOf(rules, f))); err != nil {
		return err
	}
	return t.restore(ctx, f, deletion(feature.Table))
}

func (t *Tables) clean(ctx context.Context, f redirect.Family) {
	for _, table := range redirect.Tables {
		_ = t.restore(ctx, f, deletion(table)) // it is not there, as a rule
	}
}

// builtIn are the matches and targets that are in no module of their own.
var builtIn = []string{"tcp", "udp", "comment", "RETURN", "ACCEPT", "DROP"}

// modules names the kernel modules of the extensions that a rule uses, as its lines name them.
func modules(r redirect.Rule, f redirect.Family) string {
	names := []string{}
	for _, spec := range specs(r, f) {
		words := strings.Fields(spec)
		for i, word := range words[:len(words)-1] {
			name := extension(words[i+1])
			extends := word == "-m" || word == "-j" && r.Then.Verb != redirect.Jump
			if extends && !slices.Contains(builtIn, words[i+1]) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "x_tables"
	}
	return strings.Join(names, ", ")
}

// extension names the module of a match or target. MARK and CONNMARK are in the modules of the
// matches.
func extension(word string) string {
	if word == "MARK" || word == "CONNMARK" {
		word = strings.ToLower(word)
	}
	return "xt_" + word
}

// tables are the modules without which a variant has no table at all.
var tables = map[Variant][]redirect.Module{
	NFT: {{Name: "nf_tables", For: "nftables, which iptables-nft writes to"},
		{Name: "nft_compat", For: "iptables' matches in nftables"},
		{Name: "nft_chain_nat", For: "the table nat"}},
	Legacy: {{Name: "ip_tables", For: "iptables"}, {Name: "iptable_nat", For: "the table nat"},
		{Name: "iptable_mangle", For: "the table mangle"},
		{Name: "iptable_raw", For: "the table raw"},
		{Name: "ip6_tables", For: "ip6tables"}, {Name: "ip6table_nat", For: "IPv6's table nat"},
		{Name: "ip6table_mangle", For: "IPv6's table mangle"},
		{Name: "ip6table_raw", For: "IPv6's table raw"}},
}

// Modules lists what the rules of any pod may need of a kernel, each module once.
func Modules(v Variant) []redirect.Module {
	all := slices.Concat([]redirect.Module{{Name: "x_tables", For: "iptables"}}, tables[v])
	for _, f := range redirect.Features() {
		for name := range strings.SplitSeq(modules(f.Rule, redirect.IPv4), ", ") {
			is := func(m redirect.Module) bool { return m.Name == name }
			if !slices.ContainsFunc(all, is) {
				all = append(all, redirect.Module{Name: name, For: f.Name})
			}
		}
	}
	return all
}

func deletion(table redirect.Table) string {
	return fmt.Sprintf("*%s\n-F %s\n-X %s\nCOMMIT\n", table, probeChain, probeChain)
}
