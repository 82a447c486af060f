package kernel

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// dialect is a way of writing a ruleset into the kernel, and the tool that lists what is there.
type dialect struct {
	name   string
	apply  func(redirect.Ruleset) error
	verify func(redirect.Ruleset) ([]redirect.Problem, error)
	remove func(redirect.Ruleset) error
	render func(redirect.Ruleset) string
	list   func(testing.TB, *netns.NS) string // by the kernel's own tool, as render writes it
	load   func(testing.TB, *netns.NS, redirect.Ruleset)
}

func dialects(t testing.TB) []dialect {
	all := []dialect{nftDialect()}
	for _, v := range []iptables.Variant{iptables.NFT, iptables.Legacy} {
		tables, err := iptables.Find(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, iptablesDialect(v, tables))
	}
	return all
}

func nftDialect() dialect {
	return dialect{
		name: "nftables", remove: nftables.Remove,
		apply: func(rs redirect.Ruleset) error {
			_, err := nftables.Apply(context.Background(), rs)
			return err
		},
		verify: func(rs redirect.Ruleset) ([]redirect.Problem, error) {
			return nftables.Verify(context.Background(), rs)
		},
		render: func(rs redirect.Ruleset) string { return withoutComments(nftables.Render(rs)) },
		list: func(t testing.TB, ns *netns.NS) string {
			return regexp.MustCompile(`counter packets \d+ bytes \d+`).ReplaceAllString(ns.Run(t, "", "nft", "list", "ruleset"), "counter")
		},
		load: func(t testing.TB, ns *netns.NS, rs redirect.Ruleset) {
			ns.Run(t, nftables.Render(rs), "nft", "-f", "-")
		},
	}
}

func iptablesDialect(v iptables.Variant, tables *iptables.Tables) dialect {
	programs := map[redirect.Family]string{redirect.IPv4: "iptables-" + string(v), redirect.IPv6: "ip6tables-" + string(v)}
	return dialect{
		name: "iptables-" + string(v),
		apply: func(rs redirect.Ruleset) error {
			_, _, err := tables.Apply(context.Background(), rs)
			return err
		},
		verify: func(rs redirect.Ruleset) ([]redirect.Problem, error) { return tables.Verify(context.Background(), rs) },
		remove: func(rs redirect.Ruleset) error { return tables.Remove(context.Background(), rs) },
		render: func(rs redirect.Ruleset) string {
			var b strings.Builder
			for _, f := range redirect.Families {
				b.WriteString("# " + f.String() + "\n" + grouped(iptables.Render(rs, f)))
			}
			return b.String()
		},
		list: func(t testing.TB, ns *netns.NS) string {
			var b strings.Builder
			for _, f := range redirect.Families {
				b.WriteString("# " + f.String() + "\n" + grouped(ns.Run(t, "", programs[f]+"-save")))
			}
			return b.String()
		},
		load: func(t testing.TB, ns *netns.NS, rs redirect.Ruleset) {
			for _, f := range redirect.Families {
				ns.Run(t, iptables.Render(rs, f), programs[f]+"-restore", "--noflush")
			}
		},
	}
}

// grouped keeps the rules, by table and chain: restore's input and save's output order these
// differently, and save lists chains that nobody asked for.
func grouped(text string) string {
	var b strings.Builder
	for _, table := range redirect.Tables {
		chains := map[string]string{}
		var order []string
		here := false
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(line, "*"); ok {
				here = strings.TrimSpace(name) == table.String()
			}
			rest, ok := strings.CutPrefix(line, "-A ")
			if !here || !ok {
				continue
			}
			chain, _, _ := strings.Cut(rest, " ")
			if _, seen := chains[chain]; !seen {
				order = append(order, chain)
			}
			chains[chain] += line
		}
		sortStrings(order)
		for _, c := range order {
			b.WriteString(table.String() + "\n" + chains[c])
		}
	}
	return b.String()
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}
