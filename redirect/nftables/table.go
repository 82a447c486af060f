// Package nftables writes a ruleset into the kernel as one table of the inet family, over netlink
// and in one transaction, and reads it back. No program of the host is needed.
//
//	rules := redirect.Compile(policy)
//	err := nftables.Apply(rules)
//	problems, err := nftables.Verify(rules)
//
// Be aware: everything happens in the network namespace of the calling thread, which the caller has
// locked and moved there. The table is ours alone: Apply and Remove replace and delete it whole.
package nftables

import (
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/routing"
)

// TableName is the name of our table.
const TableName = "sidecar-cni"

// table is the ruleset in nft's terms.
type table struct {
	name   string
	chains []*chain
}

type chain struct {
	name  string
	base  *base // nil: entered by jumps
	rules []*statement
}

// base is what a hook's chain is, beside its rules.
type base struct {
	kind     string
	hook     uint32
	priority int32
	policy   uint32
	words    string // as nft prints it
}

func (b *base) String() string {
	if b == nil {
		return "a chain without a hook"
	}
	return fmt.Sprintf("type %s hook %d priority %d policy %d", b.kind, b.hook, b.priority,
		b.policy)
}

// bases says how a table and hook of iptables are called and ordered in nft. A mark that is set on
// the way out only re-routes the packet from a chain of type route.
var bases = map[redirect.Table]map[redirect.Hook]base{
	redirect.Raw: {
		redirect.Prerouting: {"filter", prerouting, -300, accept,
			"type filter hook prerouting priority raw; policy accept;"},
		redirect.Output: {"filter", output, -300, accept, "type filter hook output priority raw; " +
			"policy accept;"},
	},
	redirect.Mangle: {
		redirect.Prerouting: {"filter", prerouting, -150, accept,
			"type filter hook prerouting priority mangle; policy accept;"},
		redirect.Output: {"route", output, -150, accept, "type route hook output priority " +
			"mangle; policy accept;"},
	},
	redirect.NAT: {
		redirect.Prerouting: {"nat", prerouting, -100, accept,
			"type nat hook prerouting priority dstnat; policy accept;"},
		redirect.Output: {"nat", output, -100, accept, "type nat hook output priority -100; " +
			"policy accept;"},
	},
}

func translate(rs redirect.Ruleset) *table {
	t := &table{name: TableName}
	var tr translator
	for _, c := range rs.Chains {
		to := &chain{name: c.Name}
		if b, ok := bases[c.Table][c.Hook]; ok {
			to.name, to.base = fmt.Sprintf("%s_%s", c.Table, strings.ToLower(c.Name)), &b
		}
		for _, r := range c.Rules {
			to.rules = append(to.rules, tr.rule(r)...)
		}
		t.chains = append(t.chains, to)
	}
	return t
}

// Render returns the table as nft lists it, counters at zero, and the routing policy as comments.
func Render(rs redirect.Ruleset) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", TableName)
	for i, c := range translate(rs).chains {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "\tchain %s {\n", c.name)
		if c.base != nil {
			fmt.Fprintf(&b, "\t\t%s\n", c.base.words)
		}
		for _, r := range c.rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	for _, command := range routing.Render(rs) {
		fmt.Fprintf(&b, "# %s\n", command)
	}
	return b.String()
}
