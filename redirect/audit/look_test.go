package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
)

// A program writes rules into a namespace.
type program func(*testing.T, *netns.NS)

// nft loads rules, each a statement or a block of nft.
func nft(rules ...string) program {
	return func(t *testing.T,
		ns *netns.NS) {
		ns.Run(t, strings.Join(rules, "\n"), "nft", "-f", "-")
	}
}

// natTable loads a table of nft with a chain at the output hook, and what else is in it.
func natTable(family, output string, chains ...string) program {
	return nft("table " + family + " a { " + strings.Join(chains, "\n") +
		"\nchain b { type nat hook output priority -100; " + output + "; }; }")
}

// restore loads lines of iptables-restore into a table.
func restore(iptables, table string, lines ...string) program {
	input := "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	return func(t *testing.T, ns *netns.NS) { ns.Run(t, input, iptables+"-restore") }
}

// load loads a whole input of iptables-restore.
func load(iptables, input string) program {
	return func(t *testing.T, ns *netns.NS) { ns.Run(t, input, iptables+"-restore") }
}

// ours programs what we do, for a pod that asks for something else than this one does now.
func ours(backend string) program {
	return func(t *testing.T, ns *netns.NS) {
		apply(t, ns, backend, policyOf(t, map[string]string{excludePort: "22"}))
	}
}

// both does one thing after the other.
func both(first, second program) program {
	return func(t *testing.T, ns *netns.NS) {
		first(t, ns)
		second(t, ns)
	}
}

// tproxy hands what enters over to an address and a port.
func tproxy(family, to string) program {
	return nft("table "+family+" a {", "chain b { type filter hook prerouting priority mangle;",
		"meta l4proto tcp tproxy to "+to+"; }; }")
}

// What is in a namespace besides a pod's own rules and redirects to its proxy: such a pod is not
// repaired.
func TestWhatCountsAsAnothersRedirection(t *testing.T) {
	t.Parallel()
	const toProxy = "chain c { meta l4proto tcp redirect to :15001; };"
	redirects := func(chain, port string) string {
		return "-A " + chain + " -p tcp -j REDIRECT --to-ports " + port
	}
	deep := func(iptables, hook string) program {
		return restore(iptables, "nat", "-N A", "-N B", "-N C", "-A "+hook, "-A "+hook+" -j C",
			"-A C -g B",
			"-A B -p tcp -j A", redirects("A", "15001"))
	}
	toPort := func(iptables, port string) program {
		return restore(iptables, "mangle",
			"-A PREROUTING -p tcp -j TPROXY --on-port "+port+" --tproxy-mark 1")
	}
	dnat := func(iptables, to string) program {
		return restore(iptables, "nat", "-A OUTPUT -p tcp -j DNAT --to-destination "+to)
	}
	letsGo := func(iptables string) program {
		return restore(iptables, "nat", "-N ISTIO_OUTPUT", "-A OUTPUT -j ISTIO_OUTPUT",
			"-A ISTIO_OUTPUT -j RETURN")
	}
	rows := map[string]struct {
		program program
		why     string
	}{
		"nat in a table that is called filter": {
			nft("table ip filter {", "chain b { type nat hook output priority -100;",
				"meta l4proto tcp redirect to :15001; }; }"),
			"chain b of table ip filter",
		},
		"istio-init by iptables-nft": {load("iptables-nft", othertools.IstioInit), "chain ISTIO_"},
		"istio-init by iptables-legacy": {
			load("iptables-legacy", othertools.IstioInit),
			"legacy table ip nat",
		},
		"istio-init by ip6tables-nft": {load("ip6tables-nft", othertools.IstioInit), "table ip6 nat"},
		"istio-init by ip6tables-legacy": {
			load("ip6tables-legacy", othertools.IstioInit),
			"legacy table ip6 nat",
		},
		"istio-init by nft": {
			nft(othertools.IstioNFT),
			"chain istio-redirect of table inet istio-proxy-nat",
		},
		"istio-init beside Docker": {
			both(load("iptables-legacy", othertools.Docker), load("iptables-nft", othertools.IstioInit)),
			"table ip nat",
		},

		"its chain, that only lets traffic go": {
			letsGo("iptables-nft"),
			"ISTIO_OUTPUT",
		},
		"its chain, that only lets traffic go, legacy": {
			letsGo("iptables-legacy"),
			"ISTIO_OUTPUT",
		},
		"a redirect to the outbound port": {
			natTable("ip", "meta l4proto tcp redirect to :15001"),
			"chain b of table ip a",
		},
		"a redirect to the inbound port": {
			natTable("ip6", "meta l4proto tcp redirect to :15006"),
			"chain b of table ip6 a",
		},
		"a redirect to the DNS port": {
			natTable("inet", "udp dport 53 redirect to :15053"),
			"chain b of table inet a",
		},
		"a redirect to a range": {
			natTable("ip", "meta l4proto tcp redirect to :15000-15002"),
			"chain b",
		},
		"a redirect by a map": {
			natTable("inet", "meta l4proto tcp redirect to tcp dport map { 80 : 9, 443 : 15001 }"),
			"chain b",
		},
		"a redirect by iptables-nft": {
			restore("iptables-nft", "nat", redirects("OUTPUT", "15001")),
			"chain OUTPUT of table ip nat",
		},
		"a redirect by ip6tables-nft": {
			restore("ip6tables-nft", "nat", redirects("OUTPUT", "15001")),
			"chain OUTPUT of table ip6 nat",
		},
		"a redirect by iptables-legacy": {
			restore("iptables-legacy", "nat", redirects("PREROUTING", "15000-15006")),
			"a hook's chain of legacy table ip nat",
		},
		"a redirect by ip6tables-legacy": {
			restore("ip6tables-legacy", "nat", "-A OUTPUT -p udp -j REDIRECT --to-ports 15053"),
			"a hook's chain of legacy table ip6 nat",
		},
		"a TPROXY":                 {tproxy("inet", ":15006"), "chain b"},
		"a TPROXY with an address": {tproxy("ip", "127.0.0.1:15006"), "chain b"},
		"a TPROXY by iptables-nft": {
			toPort("iptables-nft", "15006"),
			"table ip mangle",
		},
		"a TPROXY by ip6tables-legacy": {
			toPort("ip6tables-legacy", "15006"),
			"legacy table ip6 mangle",
		},
		"a DNAT to loopback": {
			natTable("ip", "meta l4proto tcp dnat to 127.0.0.1:15001"),
			"chain b",
		},
		"a DNAT to loopback by a map": {
			natTable("ip", "dnat ip to tcp dport map { 80 : 192.0.2.1 . 9, 443 : 127.0.0.1 . 15001 }"),
			"chain b",
		},
		"a DNAT to the pod's address": {
			natTable("inet", "meta l4proto tcp dnat ip to 10.244.0.2:15001"),
			"chain b",
		},
		"a DNAT to the pod's IPv6 address": {
			natTable("ip6", "meta l4proto tcp dnat to [fd00:244::2]:15001"),
			"chain b",
		},
		"a DNAT to loopback by iptables-nft": {
			dnat("iptables-nft", "127.0.0.1:15001"),
			"chain OUTPUT",
		},
		"a DNAT to loopback by iptables-legacy": {
			dnat("iptables-legacy", "127.0.0.1:15001"),
			"legacy table ip nat",
		},
		"a DNAT to the pod's address by ip6tables-legacy": {
			dnat("ip6tables-legacy", "[fd00:244::2]:15001"),
			"legacy table ip6 nat",
		},

		"three jumps away": {
			natTable("inet", "jump d", toProxy, "chain e { goto c; };", "chain d { jump e; };"),
			"chain c",
		},
		"by an anonymous chain": {
			natTable("ip", "ip protocol tcp jump { ip daddr 192.0.2.0/24 jump c; }", toProxy),
			"chain c",
		},
		"by a verdict map": {
			natTable("ip", "tcp dport vmap { 22 : accept, 80 : goto c }", toProxy),
			"chain c",
		},
		"by a verdict map with a name": {natTable("ip6", "ip6 daddr vmap @m", toProxy,
			"map m { type ipv6_addr : verdict; flags interval; elements = { 2001:db8::/32 : jump c }; };"), "chain c"},
		"three jumps away, iptables-nft": {
			deep("iptables-nft", "OUTPUT"),
			"chain A of table ip nat",
		},
		"three jumps away, iptables-legacy": {
			deep("iptables-legacy", "PREROUTING"),
			"chain A of legacy table ip nat",
		},
		"three jumps away, ip6tables-legacy": {
			deep("ip6tables-legacy", "OUTPUT"),
			"chain A of legacy table ip6 nat",
		},
		"a thousand rules, one of interest": {
			load("iptables-legacy", manyRules()),
			"legacy table ip nat",
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judged(t, row.program, audit.Foreign, "rules of another tool redirect it", row.why)
		})
	}
}

// What is no redirection to the proxy, or one that no packet meets: such a pod is open, whatever
// else is in its namespace.
func TestWhatLeavesAPodOpen(t *testing.T) {
	t.Parallel()
	const toProxy = "chain c { meta l4proto tcp redirect to :15001; };"
	dnatTo := func(to string) []string {
		return []string{"-A OUTPUT -p tcp -j DNAT " +
			"--to-destination " + to}
	}
	rows := map[string]program{
		"nothing":                    func(*testing.T, *netns.NS) {},
		"Docker by iptables-nft":     load("iptables-nft", othertools.Docker),
		"Docker by iptables-legacy":  load("iptables-legacy", othertools.Docker),
		"Docker by ip6tables-nft":    load("ip6tables-nft", othertools.Docker6),
		"Docker by ip6tables-legacy": load("ip6tables-legacy", othertools.Docker6),
		"a DNAT to another": natTable(
			"ip", "meta l4proto tcp dnat to 192.0.2.1:15001"),
		"a DNAT to another by a map": natTable(
			"ip", "dnat to tcp dport map { 80 : 192.0.2.1 }"),
		"a DNAT to another port of loopback": natTable(
			"ip", "meta l4proto tcp dnat to 127.0.0.1:80"),
		"a DNAT without a port": natTable(
			"ip", "meta l4proto tcp dnat to 127.0.0.1"),
		"a DNAT without a port, iptables-nft": restore(
			"iptables-nft", "nat", dnatTo("127.0.0.1")...),
		"a DNAT without a port, legacy": restore(
			"iptables-legacy", "nat", dnatTo("127.0.0.1")...),
		"a redirect to another port": natTable("inet", "tcp dport 80 redirect to :8080"),
		"a redirect by a map to other ports": natTable(
			"inet", "meta l4proto tcp redirect to tcp dport map { 80 : 8080, 443 : 8443 }"),
		"a redirect without a port": natTable("inet", "tcp dport 15001 redirect"),
		"a redirect to another, iptables-nft": restore(
			"iptables-nft", "nat", "-A OUTPUT -p tcp -j REDIRECT --to-ports 8080"),
		"a redirect to another, legacy": restore(
			"iptables-legacy", "nat", "-A OUTPUT -p tcp -j REDIRECT --to-ports 15007-15052"),
		"a redirect without a port, legacy": restore(
			"iptables-legacy", "nat", "-A OUTPUT -p tcp -j REDIRECT"),
		"a TPROXY to another port": tproxy("inet", ":9"),
		"a TPROXY to another, iptables-nft": restore(
			"iptables-nft", "mangle",
			"-A PREROUTING -p tcp -j TPROXY --on-port 1 --tproxy-mark 15001"),
		"a TPROXY to another, ip6tables-legacy": restore(
			"ip6tables-legacy", "mangle", "-A PREROUTING -p tcp -j TPROXY --on-port 1 "+
				"--tproxy-mark 15001"),

		"istio-init's chains, empty": nft(
			"add table ip nat; add chain ip nat ISTIO_OUTPUT"),
		"istio-init's chains, empty, legacy": restore(
			"iptables-legacy", "nat", "-N ISTIO_OUTPUT"),
		"istio-init's chains, empty, reached": restore(
			"iptables-nft", "nat", "-N ISTIO_OUTPUT", "-A OUTPUT -j ISTIO_OUTPUT"),
		"istio-init's chains, empty, reached, legacy": restore(
			"iptables-legacy", "nat", "-N ISTIO_OUTPUT", "-A OUTPUT -j ISTIO_OUTPUT"),
		"istio-init's, the hooks flushed": both(
			load("iptables-nft", othertools.IstioInit), nft("flush chain ip nat OUTPUT; flush chain ip "+
				"nat PREROUTING")),
		"istio-init's, the hooks flushed, legacy": both(load("iptables-legacy", othertools.IstioInit),
			func(t *testing.T, ns *netns.NS) {
				ns.Run(t, "*nat\n-F OUTPUT\n-F PREROUTING\nCOMMIT\n", "iptables-legacy-restore",
					"--noflush")
			}),
		"a table that is dormant": both(
			nft(othertools.IstioNFT), nft("add table inet istio-proxy-nat { flags dormant; }")),
		"a chain that nothing leads to": natTable("inet", "accept", toProxy),
		"chains that lead to one another only": natTable(
			"inet", "accept", toProxy, "chain d { jump c; };"),
		"a map that nothing looks up": natTable("ip", "accept", toProxy,
			"map m { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump c }; };"),
		"a chain of that name in another table": both(
			natTable("ip", "jump c", "chain c { accept; };"), nft("table ip z { "+toProxy+" }")),
		"a chain of that name in another family": both(
			natTable("ip", "jump c", "chain c { accept; };"), nft("table ip6 a { "+toProxy+" }")),

		"masquerading": nft(
			"table ip a { chain b { type nat hook postrouting priority 100; masquerade; }; }"),
		"SNAT": nft(
			"table ip a { chain b { type nat hook postrouting priority 100; meta l4proto tcp " +
				"snat to 127.0.0.1:15001; }; }"),
		"masquerading by iptables-nft": restore(
			"iptables-nft", "nat", "-A POSTROUTING -j MASQUERADE"),
		"SNAT by iptables-legacy": restore(
			"iptables-legacy", "nat", "-A POSTROUTING -p tcp -j SNAT --to-source 127.0.0.1:15001"),
		"a firewall": nft(
			"table inet a { chain ISTIO_B { type filter hook input priority 0; tcp dport 15001 " +
				"drop; }; }"),
		"a legacy firewall": restore(
			"iptables-legacy", "filter", "-N ISTIO_NOT", "-A OUTPUT -j ISTIO_NOT",
			"-A ISTIO_NOT -p tcp -m tcp --dport 22 -j DROP"),
		"a firewall by iptables-nft": restore(
			"iptables-nft", "filter", "-N ISTIO_NOT", "-A OUTPUT -j ISTIO_NOT",
			"-A ISTIO_NOT -p tcp -m tcp --dport 22 -j DROP"),
		"legacy tables that are empty": func(t *testing.T,
			ns *netns.NS) {
			ns.Run(t, "", "iptables-legacy", "-t", "nat", "-L")
		},
		"our table that somebody flushed": both(
			ours(nftBackend), nft("flush table inet sidecar-cni")),
		"our table that somebody deleted": both(
			ours(nftBackend), nft("delete table inet sidecar-cni")),
	}
	for name, program := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judged(t, program, audit.Missing, "no rule")
		})
	}
}

func TestOurRulesThatNobodyRecorded(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			judged(t, ours(backend), audit.Foreign, "no record says")
		})
	}
}

// judged programs a pod's namespace and wants a finding, which leaves it as it is.
func judged(t *testing.T, write program, want audit.Finding, words ...string) {
	t.Helper()
	ns, n := netns.New(t), newNode(t)
	n.run("web-0", ns)
	write(t, ns)
	before := rules(t, ns)
	n.want(n.pod("web-0", nil), want, words...)
	if after := rules(t, ns); after != before {
		t.Errorf("looking changed it from\n%s\nto\n%s", before, after)
	}
}

// manyRules fill more than what one read of a socket brings.
func manyRules() string {
	var b strings.Builder
	b.WriteString("*nat\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "-A OUTPUT -d 10.0.%d.%d/32 -p tcp -j RETURN\n", i/250, i%250)
	}
	b.WriteString("-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n")
	return b.String()
}
