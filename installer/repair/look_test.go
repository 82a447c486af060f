package repair_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/installer/repair"
	"github.com/sidecar-cni/sidecar-cni/plugin/record"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

var counters = regexp.MustCompile(` packets \d+ bytes \d+|\[\d+:\d+\]`)

func identify(t *testing.T, ns *netns.NS) record.Netns {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	return record.Netns{Path: mounted(t, ns), Device: st.Dev, Inode: st.Ino}
}

// byIstioInit is what istio-init's container writes, shortened.
const byIstioInit = `*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`

// byIstioNFT is how its nftables dialect calls the same.
const byIstioNFT = `table inet istio-proxy-nat {
	chain istio-redirect { meta l4proto tcp redirect to :15001; }
	chain output { type nat hook output priority -100; jump istio-redirect; }
}`

// What is in a namespace besides a pod's own rules, and whether it is a redirection: a pod that has one is not repaired.
func TestWhatCountsAsARedirection(t *testing.T) {
	t.Parallel()
	nft := func(rules string) func(*testing.T, *netns.NS) {
		return func(t *testing.T, ns *netns.NS) { ns.Run(t, rules, "nft", "-f", "-") }
	}
	restore := func(program, rules string) func(*testing.T, *netns.NS) {
		return func(t *testing.T, ns *netns.NS) { ns.Run(t, rules, program+"-restore") }
	}
	ours := func(backend string) func(*testing.T, *netns.NS) {
		return func(t *testing.T, ns *netns.NS) {
			apply(t, ns, backend, policyOf(t, map[string]string{excludePort: "22"})) // not what the pod asks for now
		}
	}
	rows := map[string]struct {
		program func(*testing.T, *netns.NS)
		want    repair.Finding
		why     string
	}{
		"nothing":                         {func(*testing.T, *netns.NS) {}, repair.Missing, "no rule"},
		"istio-init by iptables-nft":      {restore("iptables-nft", byIstioInit), repair.Foreign, "chain ISTIO_"},
		"istio-init by iptables-legacy":   {restore("iptables-legacy", byIstioInit), repair.Foreign, "legacy table ip nat"},
		"istio-init by ip6tables-nft":     {restore("ip6tables-nft", byIstioInit), repair.Foreign, "table ip6 nat"},
		"istio-init by ip6tables-legacy":  {restore("ip6tables-legacy", byIstioInit), repair.Foreign, "legacy table ip6 nat"},
		"istio-init by nft":               {nft(byIstioNFT), repair.Foreign, "table inet istio-proxy-nat"},
		"its chains alone":                {nft("add table ip nat; add chain ip nat ISTIO_OUTPUT"), repair.Foreign, "ISTIO_OUTPUT"},
		"its chains alone, legacy":        {restore("iptables-legacy", "*nat\n-N ISTIO_OUTPUT\nCOMMIT\n"), repair.Foreign, "ISTIO_OUTPUT"},
		"a DNAT":                          {nft("table ip a { chain b { type nat hook output priority -100; dnat to 192.0.2.1; }; }"), repair.Foreign, "chain b of table ip a"},
		"a DNAT by a map":                 {nft("table ip a { chain b { type nat hook output priority -100; dnat to tcp dport map { 80 : 192.0.2.1 }; }; }"), repair.Foreign, "chain b"},
		"a TPROXY":                        {nft("table inet a { chain b { type filter hook prerouting priority mangle; meta l4proto tcp tproxy to :15006; }; }"), repair.Foreign, "chain b"},
		"a DNAT by iptables-nft":          {restore("iptables-nft", "*nat\n-A OUTPUT -p tcp -j DNAT --to-destination 192.0.2.1\nCOMMIT\n"), repair.Foreign, "chain OUTPUT"},
		"a TPROXY by iptables-nft":        {restore("iptables-nft", "*mangle\n-A PREROUTING -p tcp -j TPROXY --on-port 1 --tproxy-mark 1\nCOMMIT\n"), repair.Foreign, "table ip mangle"},
		"a DNAT by iptables-legacy":       {restore("iptables-legacy", "*nat\n-A OUTPUT -p tcp -j DNAT --to-destination 192.0.2.1\nCOMMIT\n"), repair.Foreign, "a hook's chain of legacy"},
		"a TPROXY by ip6tables-legacy":    {restore("ip6tables-legacy", "*mangle\n-A PREROUTING -p tcp -j TPROXY --on-port 1 --tproxy-mark 1\nCOMMIT\n"), repair.Foreign, "legacy table ip6 mangle"},
		"ours that nobody recorded":       {ours(nftBackend), repair.Foreign, "rules of sidecar-cni"},
		"ours by iptables-nft":            {ours(iptNFT), repair.Foreign, "rules of sidecar-cni redirect it, the first in chain"},
		"ours by iptables-legacy":         {ours(iptLegacy), repair.Foreign, "rules of sidecar-cni"},
		"masquerading":                    {nft("table ip a { chain b { type nat hook postrouting priority 100; masquerade; }; }"), repair.Missing, ""},
		"SNAT":                            {nft("table ip a { chain b { type nat hook postrouting priority 100; snat to 192.0.2.1; }; }"), repair.Missing, ""},
		"masquerading by iptables-nft":    {restore("iptables-nft", "*nat\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n"), repair.Missing, ""},
		"masquerading by iptables-legacy": {restore("iptables-legacy", "*nat\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n"), repair.Missing, ""},
		"a firewall":                      {nft("table inet a { chain b { type filter hook input priority 0; tcp dport 22 drop; }; }"), repair.Missing, ""},
		"a legacy firewall":               {restore("iptables-legacy", "*filter\n-N ISTIO_NOT\n-A INPUT -p tcp -m tcp --dport 22 -j DROP\nCOMMIT\n"), repair.Missing, ""},
		"legacy tables that are empty":    {func(t *testing.T, ns *netns.NS) { ns.Run(t, "", "iptables-legacy", "-t", "nat", "-L") }, repair.Missing, ""},
		"our table that somebody flushed": {func(t *testing.T, ns *netns.NS) {
			ours(nftBackend)(t, ns)
			ns.Run(t, "", "nft", "flush", "table", "inet", "sidecar-cni")
		}, repair.Missing, ""},
		"a thousand rules, one of interest": {func(t *testing.T, ns *netns.NS) { ns.Run(t, manyRules(), "iptables-legacy-restore") }, repair.Foreign, "legacy table ip nat"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := netns.New(t), newNode(t, repair.Report)
			n.run(meshed("web-0", nil), ns)
			row.program(t, ns)
			before := rules(t, ns)
			outcome := repair.Outcome("")
			if row.want == repair.Missing {
				outcome = repair.Reported
			}
			n.want(n.pass(), row.want, outcome, row.why)
			if after := rules(t, ns); after != before {
				t.Errorf("looking changed it from\n%s\nto\n%s", before, after)
			}
		})
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
