// Package iptables writes a ruleset with the host's iptables, one iptables-restore a family, and
// reads it back with iptables-save. It is for kernels and hosts that cannot do nftables.
//
//	tables, err := iptables.Find(iptables.NFT)
//	undo, warnings, err := tables.Apply(ctx, rules)
//	problems, err := tables.Verify(ctx, rules)
//
// Be aware: everything happens in the network namespace of the calling thread, which the caller has
// locked and moved there. A table of a family changes at once, two of them one after the other: nat
// comes first, so that nothing is ever redirected by less than the new nat rules. A namespace of
// another user namespace is refused by the kernel.
package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

// Render returns the input of iptables-restore for a family, and the routing policy as comments.
func Render(rs redirect.Ruleset, f redirect.Family) string {
	var b strings.Builder
	b.WriteString(deletions{}.replacedBy(creationsOf(rs, f)))
	for _, command := range routing.Render(rs) {
		fmt.Fprintf(&b, "# %s\n", command)
	}
	return b.String()
}

// creations are the lines that make iptables-restore write chains and rules, by table.
type creations map[redirect.Table][]string

func creationsOf(rs redirect.Ruleset, f redirect.Family) creations {
	lines := creations{}
	for _, c := range rs.Chains {
		if c.Hook == redirect.NoHook {
			lines[c.Table] = append(lines[c.Table], "-N "+c.Name)
		}
	}
	for _, c := range rs.Chains {
		for _, spec := range chainSpecs(c, f) {
			lines[c.Table] = append(lines[c.Table], "-A "+c.Name+" "+spec)
		}
	}
	return lines
}

func chainSpecs(c redirect.Chain, f redirect.Family) []string {
	var all []string
	for _, r := range c.Rules {
		all = append(all, specs(r, f)...)
	}
	return all
}

// deletions are the lines that make iptables-restore forget what is ours, by table.
type deletions map[redirect.Table][]string

// replacedBy is one run of iptables-restore: in each table old lines go and new ones come,
// together. nat is the first table, so that nothing is ever redirected by less than the new rules
// of nat.
func (d deletions) replacedBy(c creations) string {
	var b strings.Builder
	for _, table := range slices.Backward(redirect.Tables) {
		if len(d[table])+len(c[table]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", table)
		for _, lines := range [][]string{d[table], c[table]} {
			for _, line := range lines {
				b.WriteString(line)
				b.WriteByte('\n')
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}
