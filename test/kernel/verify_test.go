package kernel

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// ruleRef is a rule in the kernel, as a tool can take hold of it.
type ruleRef struct {
	table, chain string
	place        int    // in its chain, from 1
	handle       string // nft's
	spec         string // what comes behind the chain's name, counters aside
}

// tampering is how to change rules behind our back with one kind of tool.
type tampering struct {
	rules   func() []ruleRef
	remove  func(ruleRef)
	replace func(ruleRef, string)
	swap    func(a, b ruleRef) // b stands right behind a
}

func nftTampering(t testing.TB, ns *netns.NS) tampering {
	chainOf := func(r ruleRef) string { return "inet sidecar-cni " + r.chain }
	nft := func(command string) { ns.Run(t, command+"\n", "nft", "-f", "-") }
	return tampering{
		rules: func() []ruleRef {
			var refs []ruleRef
			var chain string
			rule := regexp.MustCompile(`^\t\t(.*) # handle (\d+)$`)
			for line := range strings.Lines(ns.Run(t, "", "nft", "-a", "list", "table", "inet",
				"sidecar-cni")) {
				line = strings.TrimSuffix(line, "\n")
				if name, ok := strings.CutPrefix(line, "\tchain "); ok {
					chain, _, _ = strings.Cut(name, " ")
				} else if m := rule.FindStringSubmatch(line); m != nil &&
					!strings.HasPrefix(m[1], "type ") {
					place := 1
					if n := len(refs); n > 0 && refs[n-1].chain == chain {
						place = refs[n-1].place + 1
					}
					refs = append(refs, ruleRef{chain: chain, place: place, handle: m[2],
						spec: m[1]})
				}
			}
			return refs
		},
		remove: func(r ruleRef) {
			nft(fmt.Sprintf("delete rule %s handle %s", chainOf(r), r.handle))
		},
		// nft 1.0.6 ends itself over "replace rule" with a list in it
		replace: func(r ruleRef, spec string) {
			nft(fmt.Sprintf("insert rule %s position %s %s", chainOf(r), r.handle, spec))
			nft(fmt.Sprintf("delete rule %s handle %s", chainOf(r), r.handle))
		},
		swap: func(a, b ruleRef) {
			nft(fmt.Sprintf("add rule %s position %s %s", chainOf(b), b.handle, a.spec))
			nft(fmt.Sprintf("delete rule %s handle %s", chainOf(a), a.handle))
		},
	}
}

func iptablesTampering(t testing.TB, ns *netns.NS, program string) tampering {
	run := func(line string) {
		table, command, _ := strings.Cut(line, " ")
		ns.Run(t, fmt.Sprintf("*%s\n%s\nCOMMIT\n", table, command), program+"-restore", "--noflush")
	}
	return tampering{
		rules: func() []ruleRef {
			var refs []ruleRef
			var table string
			places := map[string]int{}
			for line := range strings.Lines(ns.Run(t, "", program+"-save")) {
				line = strings.TrimSuffix(line, "\n")
				if name, ok := strings.CutPrefix(line, "*"); ok {
					table = name
				} else if rule, ok := strings.CutPrefix(line, "-A "); ok {
					chain, spec, _ := strings.Cut(rule, " ")
					places[table+chain]++
					refs = append(refs, ruleRef{table: table, chain: chain,
						place: places[table+chain], spec: spec})
				}
			}
			return refs
		},
		remove: func(r ruleRef) { run(fmt.Sprintf("%s -D %s %d", r.table, r.chain, r.place)) },
		replace: func(r ruleRef,
			spec string) {
			run(fmt.Sprintf("%s -R %s %d %s", r.table, r.chain, r.place, spec))
		},
		swap: func(a, _ ruleRef) {
			run(fmt.Sprintf("%s -D %s %d", a.table, a.chain, a.place))
			run(fmt.Sprintf("%s -I %s %d %s", a.table, a.chain, a.place+1, a.spec))
		},
	}
}

// everyTampering takes hold of the rules of a dialect, with each of its tools.
func everyTampering(t testing.TB, d dialect, ns *netns.NS) []tampering {
	if d.name == redirect.NFTables {
		return []tampering{nftTampering(t, ns)}
	}
	return []tampering{iptablesTampering(t, ns, d.name),
		iptablesTampering(t, ns, strings.Replace(d.name, "ip", "ip6", 1))}
}

// altered is the rule with one value changed: a number in it, else what it does.
func altered(spec string) string {
	before, comment, _ := strings.Cut(spec, "comment")
	numbers := regexp.MustCompile(
		`(port|dports|to|to-ports|uid|uid-owner|skuid|skgid|gid-owner|zone|set) :?(\d+)( |$)`)
	if at := numbers.FindStringSubmatchIndex(spec); at != nil {
		n, _ := strconv.Atoi(spec[at[4]:at[5]])
		return spec[:at[4]] + strconv.Itoa(n+1) + spec[at[5]:]
	}
	if strings.Contains(before, " return ") {
		return strings.Replace(spec, " return ", " accept ", 1)
	}
	if strings.HasSuffix(comment, " -j RETURN") {
		return strings.TrimSuffix(spec, "RETURN") + "ACCEPT"
	}
	if strings.Contains(before, "jump ") {
		return regexp.MustCompile(`jump \S+`).ReplaceAllString(spec, "return")
	}
	return regexp.MustCompile(`-j ISTIO_\S+`).ReplaceAllString(spec, "-j RETURN")
}

// busy is a pod whose rules have every match and action.
func busy(t testing.TB) redirect.Ruleset {
	r := matrix.Plain()
	r.Name = "busy"
	for _, name := range []string{
		"tproxy", "exclude CIDRs", "include CIDRs", "exclude inbound ports",
		"include outbound ports", "exclude one outbound port",
		"exclude interfaces by prefix", "virtual interface", "exclude uids", "dns", "drop invalid",
		"include groups", "several proxy users",
	} {
		i := slices.IndexFunc(matrix.Options,
			func(o matrix.Option) bool { return o.Name == name })
		matrix.Options[i].Set(&r)
	}
	_, rs := compile(t, r)
	return rs
}

// TestVerifySees changes one rule after the other and expects to be told which.
func TestVerifySees(t *testing.T) {
	netns.RequireRoot(t)
	rs := busy(t)
	for _, d := range dialects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			ns := netns.New(t)
			apply(t, d, ns, rs)
			for i := range everyTampering(t, d, ns) {
				tools := func() tampering { return everyTampering(t, d, ns)[i] }
				seesEvery(t, d, ns, rs, tools)
			}
		})
	}
}

func seesEvery(t *testing.T, d dialect, ns *netns.NS, rs redirect.Ruleset, tools func() tampering) {
	t.Helper()
	rules := tools().rules()
	if len(rules) < 30 {
		t.Fatalf("only %d rules to tamper with", len(rules))
	}
	for i, r := range rules {
		tools().remove(r)
		wantNamed(t, d, ns, rs, r, "after its deletion")
		apply(t, d, ns, rs)

		now := tools().rules()
		if spec := altered(r.spec); spec != r.spec {
			tools().replace(now[i], spec)
			wantNamed(t, d, ns, rs, r, "after a change to "+spec)
			apply(t, d, ns, rs)
			now = tools().rules()
		}
		if i+1 < len(now) && now[i+1].chain == r.chain && now[i+1].table == r.table &&
			now[i+1].spec != r.spec {
			tools().swap(now[i], now[i+1])
			wantNamed(t, d, ns, rs, r, "after a swap with the next")
			apply(t, d, ns, rs)
		}
	}
	wantSilence(t, d, ns, rs)
}

// wantNamed wants a problem at the place of the rule.
func wantNamed(t *testing.T, d dialect, ns *netns.NS, rs redirect.Ruleset, r ruleRef, what string) {
	t.Helper()
	problems := verify(t, d, ns, rs)
	for _, p := range problems {
		if strings.HasSuffix(p.Where, r.chain) && p.Rule == r.place {
			return
		}
	}
	t.Errorf("%s rule %d (%s) %s: verify says %v", r.chain, r.place, r.spec, what, problems)
}

// TestVerifySeesMoreThanRules changes what is around the rules.
func TestVerifySeesMoreThanRules(t *testing.T) {
	netns.RequireRoot(t)
	for _, tt := range []struct{ name, dialect, command, where string }{
		{"dormant table", "nftables", "nft add table inet sidecar-cni '{ flags dormant ; }'",
			"table inet sidecar-cni"},
		{"deleted table", "nftables", "nft delete table inet sidecar-cni",
			"table inet sidecar-cni"},
		{"deleted chain", "nftables", "nft flush chain inet sidecar-cni nat_prerouting; nft " +
			"delete chain inet sidecar-cni nat_prerouting", "nat_prerouting"},
		{"new chain", "nftables", "nft add chain inet sidecar-cni other", "other"},
		{"dropping policy", "nftables", "nft add chain inet sidecar-cni nat_output '{ policy " +
			"drop ; }'", "nat_output"},
		{"added rule", "nftables", "nft insert rule inet sidecar-cni ISTIO_OUTPUT accept",
			"ISTIO_OUTPUT"},
		{"undecodable rule", "nftables", "nft insert rule inet sidecar-cni ISTIO_OUTPUT meta " +
			"l4proto tcp notrack", "ISTIO_OUTPUT"},
		{"deleted rule", "iptables-nft", "iptables-nft -t nat -D ISTIO_OUTPUT 1", "ISTIO_OUTPUT"},
		{"flushed chain", "iptables-legacy", "ip6tables-legacy -t nat -F ISTIO_OUTPUT",
			"ISTIO_OUTPUT"},
		{"unhooked", "iptables-legacy", "ip6tables-legacy -t nat -F OUTPUT", "OUTPUT"},
		{"address", "nftables", "ip address del ::6/128 dev lo", "lo"},
		{"route", "iptables-nft", "ip -6 route del local default dev lo table 133",
			"routing table 133"},
		{"rule", "nftables", "ip rule del fwmark 1337", "routing policy"},
	} {
		t.Run(tt.dialect+" "+tt.name, func(t *testing.T) {
			t.Parallel()
			rs := busy(t)
			ns := netns.New(t)
			for _, d := range dialects(t) {
				if d.name != tt.dialect {
					continue
				}
				apply(t, d, ns, rs)
				ns.Run(t, "", "sh", "-c", tt.command)
				problems := verify(t, d, ns, rs)
				if !slices.ContainsFunc(problems,
					func(p redirect.Problem) bool { return strings.HasSuffix(p.Where, tt.where) }) {
					t.Errorf("after %q verify says %v, not a word about %s", tt.command, problems,
						tt.where)
				}
				apply(t, d, ns, rs)
				wantSilence(t, d, ns, rs)
			}
		})
	}
}

// TestForeignRulesAreRefused meets what istio-init would have left: no dialect mixes its rules with
// another tool's.
func TestForeignRulesAreRefused(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t)[1:] {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			_, rs := compile(t, matrix.Plain())
			ns := netns.New(t)
			program := strings.Replace(d.name, "iptables-", "ip6tables-", 1)
			ns.Run(t, "*nat\n:ISTIO_OUTPUT - [0:0]\n-A ISTIO_OUTPUT -j RETURN\nCOMMIT\n",
				program+"-restore")
			before := d.list(t, ns)
			var err error
			ns.Do(t, func() { err = d.apply(rs) })
			if err == nil || !strings.Contains(err.Error(), "programmed by another tool") {
				t.Errorf("apply over another tool's rules: %v", err)
			}
			if after := d.list(t, ns); after != before {
				t.Errorf("the refusal changed the rules:\n%s", after)
			}
		})
	}
}
