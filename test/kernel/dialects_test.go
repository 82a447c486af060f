package kernel

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/backend"
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
	probe  func(context.Context) []redirect.Lack
	render func(redirect.Ruleset) string
	list   func(testing.TB, *netns.NS) string // by the kernel's own tool, as render writes it
	load   func(testing.TB, *netns.NS, redirect.Ruleset)

	// what iptables-save and ip6tables-save print with these arguments; nil for nftables
	save func(t testing.TB, ns *netns.NS, args ...string) (ipv4, ipv6 string)
}

func dialects(t testing.TB) []dialect {
	var all []dialect
	for _, name := range redirect.Backends {
		found, err := backend.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		d := iptablesDialect(name, strings.Replace(name, "ip", "ip6", 1))
		if name == redirect.NFTables {
			d = nftDialect()
		}
		d.name, d.probe = name, found.Probe
		d.apply = func(rs redirect.Ruleset) error {
			_, _, err := found.Apply(context.Background(), rs)
			return err
		}
		d.verify = func(rs redirect.Ruleset) ([]redirect.Problem, error) {
			return found.Verify(context.Background(), rs)
		}
		d.remove = func(rs redirect.Ruleset) error { return found.Remove(context.Background(), rs) }
		all = append(all, d)
	}
	return all
}

func nftDialect() dialect {
	return dialect{
		render: func(rs redirect.Ruleset) string { return withoutComments(nftables.Render(rs)) },
		list: func(t testing.TB, ns *netns.NS) string {
			return regexp.MustCompile(`counter packets \d+ bytes \d+`).
				ReplaceAllString(ns.Run(t, "", "nft", "list", "ruleset"), "counter")
		},
		load: func(t testing.TB, ns *netns.NS, rs redirect.Ruleset) {
			ns.Run(t, nftables.Render(rs), "nft", "-f", "-")
		},
	}
}

func iptablesDialect(ipv4, ipv6 string) dialect {
	programs := map[redirect.Family]string{redirect.IPv4: ipv4, redirect.IPv6: ipv6}
	return dialect{
		save: func(t testing.TB, ns *netns.NS, args ...string) (string, string) {
			return ns.Run(t, "", ipv4+"-save", args...), ns.Run(t, "", ipv6+"-save", args...)
		},
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
				b.WriteString("# " + f.String() + "\n" +
					grouped(ns.Run(t, "", programs[f]+"-save")))
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
