package nftrace

import (
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
)

// known are the rules of a namespace by table, chain and handle.
type known map[ruleKey]Rule

type ruleKey struct {
	table, chain string
	handle       uint64
}

// recognize numbers the rules that the kernel has, and finds those of the ruleset among them.
func recognize(tables []kernelrules.Table, rs redirect.Ruleset) known {
	all := known{}
	for _, t := range tables {
		name := t.Family + " " + t.Name
		for _, c := range t.Chains {
			places := placesOf(t, c, rs)
			for i, r := range c.Rules {
				all[ruleKey{name, c.Name, r.Handle}] = Rule{Table: name, Chain: c.Name,
					Handle: r.Handle, Number: i + 1, Comment: r.Comment, Text: r.Text,
					Ours: r.Ours, Place: places[i]}
			}
		}
	}
	return all
}

// placesOf returns, for each rule of a chain, the place of that rule of the ruleset that it was
// written for. A rule may have become several, which follow each other, and has its reason as their
// comment; rules that others have put between are no hindrance.
func placesOf(t kernelrules.Table, c kernelrules.Chain, rs redirect.Ruleset) []string {
	places := make([]string, len(c.Rules))
	of, found := chainOf(t, c.Name, rs)
	if !found {
		return places
	}
	want, next := lines(t, of), 0
	for i, r := range c.Rules {
		if !r.Ours {
			continue
		}
		for j := next; j < len(want); j++ {
			if isFor(r.Comment, of.Rules[want[j]].Why) {
				places[i], next = place(of.Table, of.Name, want[j]), j+1
				break
			}
		}
	}
	return places
}

// lines lists, for each rule that the kernel should have in a chain, the number of that of the
// ruleset.
func lines(t kernelrules.Table, c redirect.Chain) []int {
	var all []int
	for i, r := range c.Rules {
		n := nftables.Lines(r)
		switch t.Family {
		case "ip":
			n = iptables.Lines(r, redirect.IPv4)
		case "ip6":
			n = iptables.Lines(r, redirect.IPv6)
		}
		for range n {
			all = append(all, i)
		}
	}
	return all
}

// isFor reports whether a rule has a comment that says why. Behind a rule of TPROXY there is one
// for what nobody listens to.
func isFor(comment, why string) bool {
	return comment == why || strings.HasPrefix(comment, why+": ")
}

// chainOf finds the chain of the ruleset that a chain of the kernel was written for.
func chainOf(t kernelrules.Table, name string, rs redirect.Ruleset) (redirect.Chain, bool) {
	if t.Family == "inet" && t.Name == nftables.TableName {
		for _, c := range rs.Chains {
			hooked := c.Table.String() + "_" + strings.ToLower(c.Name)
			if c.Hook == redirect.NoHook && c.Name == name ||
				c.Hook != redirect.NoHook && hooked == name {
				return c, true
			}
		}
		return redirect.Chain{}, false
	}
	if t.Family != "ip" && t.Family != "ip6" {
		return redirect.Chain{}, false
	}
	for _, table := range redirect.Tables {
		if table.String() == t.Name {
			return rs.Chain(table, name)
		}
	}
	return redirect.Chain{}, false
}
