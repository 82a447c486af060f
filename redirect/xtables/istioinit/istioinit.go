// Package istioinit writes the rules that istio-init would write, from the command line that it
// would be given: a second pen beside redirect.Compile, with which it shares no decision.
//
//	args := []string{"-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-b", "*"}
//	listing, err := istioinit.Write(args, nil, istioinit.Pod{IPv6: true})
//
// The text is what istio-init hands to iptables-restore --noflush, in its order and with its
// oddities: what it inserts is inserted here, and lists are neither sorted nor merged.
//
// Be aware: flags that make istio-init write no rules, or write them by nftables, change nothing.
// Names of users, groups and services are refused: only the container could look them up.
package istioinit

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect/initflags"
)

// Pod is what istio-init finds out by itself in the pod.
type Pod struct {
	// IPv6 says that there are rules of IPv6. istio-init writes them if the first address that is
	// neither loopback nor link-local is one of IPv6 or, with --dual-stack, if any is.
	IPv6        bool
	Nameservers []netip.Addr // of /etc/resolv.conf, in its order
}

// Listing is what istio-init writes.
type Listing struct {
	IPv4  string   // for iptables-restore
	IPv6  string   // for ip6tables-restore; empty without Pod.IPv6
	Marks []uint32 // an ip rule in each family has packets with one of them delivered in the pod
}

// Write returns what istio-init would write with these arguments and the variables of its
// container. The error names every value that cannot be read.
func Write(args []string, env map[string]string, pod Pod) (Listing, error) {
	f, err := readFlags(args, env)
	if err != nil {
		return Listing{}, err
	}
	for _, s := range pod.Nameservers {
		f["nameservers"] = append(f["nameservers"], netip.PrefixFrom(s, s.BitLen()).String())
	}
	l := Listing{IPv4: f.text(rules{}, f[initflags.LoopbackCIDR][0], "127.0.0.6/32")}
	if pod.IPv6 {
		l.IPv6 = f.text(rules{ipv6: true}, "::1/128", "::6/128")
	}
	if f.is("istio-inbound-interception-mode", "TPROXY") && f["istio-inbound-ports"] != nil {
		mark, _ := strconv.ParseUint(f["istio-inbound-tproxy-mark"][0], 10, 32)
		l.Marks = []uint32{uint32(mark)}
	}
	return l, nil
}

// text writes a chain where istio-init first adds to it, and * in a match as no match.
func (f flags) text(r rules, loopback, passthrough string) string {
	f.write(&r)
	all := strings.NewReplacer("$loopback", loopback, "$passthrough", passthrough,
		"$outbound", f["envoy-port"][0], "$inbound", f["inbound-capture-port"][0],
		"$tunnel", f["inbound-tunnel-port"][0], "$mark", f["istio-inbound-tproxy-mark"][0],
		" --dport *", "", " -d *", "", " -s *", "").Replace(r.lines)
	var text string
	for _, table := range []string{"mangle", "nat", "raw"} {
		var chains, lines string
		for line := range strings.Lines(all) {
			rule, ok := strings.CutPrefix(strings.TrimLeft(line, "\t"), table+" ")
			if !ok {
				continue
			}
			lines += rule
			chain := "-N " + strings.Fields(rule)[1] + "\n"
			if strings.HasPrefix(chain, "-N ISTIO_") && !strings.Contains(chains, chain) {
				chains += chain
			}
		}
		if lines != "" {
			text += "*" + table + "\n" + chains + lines + "COMMIT\n"
		}
	}
	return text
}

// rules are those of a family, one a line, each behind the name of its table.
type rules struct {
	ipv6  bool
	lines string
}

func (r *rules) add(lines string) { r.lines += lines + "\n" }

// each adds rules for each item, which is $item in them.
func (r *rules) each(items []string, lines string) {
	for _, item := range items {
		r.add(strings.ReplaceAll(lines, "$item", item))
	}
}

// own returns the CIDRs of the family. IPv4 in the form of IPv6 is IPv6 to istio-init.
func (r *rules) own(cidrs []string) []string {
	other := func(cidr string) bool { return cidr == "*" || strings.Contains(cidr, ":") != r.ipv6 }
	return slices.DeleteFunc(slices.Clone(cidrs), other)
}

// write adds the rules in the order of tools/istio-iptables/pkg/capture/run.go of istio/istio.
func (f flags) write(r *rules) {
	tproxy := f.is("istio-inbound-interception-mode", "TPROXY")
	dns := f.is("redirect-dns", "true") && // without nameservers istio-init warns, and does nothing
		(f["nameservers"] != nil || f.is("capture-all-dns", "true"))
	r.each(f["istio-exclude-interfaces"], `nat -A PREROUTING -i $item -j RETURN
		nat -A OUTPUT -o $item -j RETURN`)
	r.each(f["kube-virt-interfaces"], `nat -I PREROUTING 1 -i $item -j RETURN`)
	if tproxy {
		r.each(f["istio-exclude-interfaces"], `mangle -A PREROUTING -i $item -j RETURN
			mangle -A OUTPUT -o $item -j RETURN`)
	}
	if f.is("drop-invalid", "true") {
		r.add(`mangle -A PREROUTING -m conntrack --ctstate INVALID -j ISTIO_DROP
			mangle -A ISTIO_DROP -j DROP`)
	}
	r.add(`nat -A ISTIO_INBOUND -p tcp --dport $tunnel -j RETURN
		nat -A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports $outbound
		nat -A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports $inbound`)
	if f["istio-inbound-ports"] != nil {
		f.captureInbound(r, tproxy)
	}
	r.add(`nat -A OUTPUT -j ISTIO_OUTPUT`)
	r.each(f["istio-local-outbound-ports-exclude"], `nat -A ISTIO_OUTPUT -p tcp --dport $item -j RETURN
		nat -A ISTIO_OUTPUT -p udp --dport $item -j RETURN`)
	r.add(`nat -A ISTIO_OUTPUT -o lo -s $passthrough -j RETURN`)
	f.leaveProxy(r, dns)
	if f.is(initflags.OwnerGroups, "*") {
		r.each(f[initflags.OwnerGroupsExclude],
			`nat -A ISTIO_OUTPUT -m owner --gid-owner $item -j RETURN`)
	} else { // an empty list leaves everybody alone
		others := append([]string{`nat -A ISTIO_OUTPUT`}, f[initflags.OwnerGroups]...)
		r.add(strings.Join(others, ` -m owner ! --gid-owner `) + ` -j RETURN`)
	}
	if dns {
		f.captureDNS(r)
	}
	r.add(`nat -A ISTIO_OUTPUT -d $loopback -j RETURN`)
	r.each(r.own(f["istio-service-exclude-cidr"]), `nat -A ISTIO_OUTPUT -d $item -j RETURN`)
	r.each(f["istio-outbound-ports"], `nat -A ISTIO_OUTPUT -p tcp --dport $item -j ISTIO_REDIRECT`)
	if f.is("istio-service-cidr", "*") {
		r.add(`nat -A ISTIO_OUTPUT -j ISTIO_REDIRECT`)
		r.each(f["kube-virt-interfaces"], `nat -I PREROUTING 1 -i $item -j ISTIO_REDIRECT`)
	}
	for _, cidr := range r.own(f["istio-service-cidr"]) {
		r.each(f["kube-virt-interfaces"], `nat -I PREROUTING 1 -i $item -d `+cidr+` -j ISTIO_REDIRECT`)
		r.add(`nat -A ISTIO_OUTPUT -d ` + cidr + ` -j ISTIO_REDIRECT`)
	}
	if tproxy {
		r.add(`mangle -A PREROUTING -p tcp -m mark --mark $mark -j CONNMARK --save-mark
			mangle -A OUTPUT -p tcp -o lo -m mark --mark $mark -j RETURN`)
		r.each(f["owners"], `mangle -A OUTPUT ! -d $loopback -p tcp -o lo -m owner $item `+
			`-j MARK --set-mark 1338`)
		r.add(`mangle -A OUTPUT -p tcp -m connmark --mark $mark -j CONNMARK --restore-mark
			mangle -I ISTIO_INBOUND 1 -p tcp -m mark --mark $mark -j RETURN
			mangle -I ISTIO_INBOUND 2 -p tcp -s $passthrough -i lo -j RETURN
			mangle -I ISTIO_INBOUND 3 -p tcp -i lo -m mark ! --mark 1338 -j RETURN`)
	}
}

// captureInbound knows no exception for the tunnel port under TPROXY: its rule is in nat.
func (f flags) captureInbound(r *rules, tproxy bool) {
	table, capture := `nat`, `nat -A ISTIO_INBOUND -p tcp --dport $item -j ISTIO_IN_REDIRECT`
	if tproxy {
		r.add(`mangle -A ISTIO_DIVERT -j MARK --set-mark $mark
			mangle -A ISTIO_DIVERT -j ACCEPT
			mangle -A ISTIO_TPROXY ! -d $loopback -p tcp -j TPROXY --tproxy-mark $mark/0xffffffff --on-port $inbound`)
		table, capture = `mangle`, `mangle -A ISTIO_INBOUND -p tcp --dport $item -m conntrack `+
			`--ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT
			mangle -A ISTIO_INBOUND -p tcp --dport $item -j ISTIO_TPROXY`
	}
	r.add(table + ` -A PREROUTING -p tcp -j ISTIO_INBOUND`)
	if f.is("istio-inbound-ports", "*") {
		r.each(f["istio-local-exclude-ports"], table+` -A ISTIO_INBOUND -p tcp --dport $item -j RETURN`)
	}
	r.each(f["istio-inbound-ports"], capture)
}

// leaveProxy leaves alone what the proxy sends, but for its calls of its own pod, and what others
// send within the pod. With DNS port 53 is left to later rules, though not in calls of a group.
func (f flags) leaveProxy(r *rules, dns bool) {
	onLoopback := func(cidr string) bool { return prefix(cidr).Addr().IsLoopback() }
	within := map[bool]string{false: `-o lo`, true: `-o lo -p tcp ! --dport 53`}[dns]
	for _, owner := range f["owners"] {
		calls := `! --dport $tunnel`
		if dns && strings.HasPrefix(owner, "--uid") {
			calls = `-m multiport ! --dports 53,$tunnel`
		}
		rule := `nat -A ISTIO_OUTPUT -o lo ! -d $loopback -p tcp ` + calls
		r.add(rule + ` -m owner ` + owner + ` -j ISTIO_IN_REDIRECT`)
		if !slices.ContainsFunc(f["istio-service-cidr"], onLoopback) { // of either family
			r.add(`nat -A ISTIO_OUTPUT ` + within + ` -m owner ! ` + owner + ` -j RETURN`)
		}
		r.add(`nat -A ISTIO_OUTPUT -m owner ` + owner + ` -j RETURN`)
	}
}

// captureDNS redirects queries, and has connection tracking keep the app's apart from the proxy's.
// A family without nameservers has the proxy's part of that alone.
func (f flags) captureDNS(r *rules) {
	to := r.own(f["nameservers"])
	if f.is("capture-all-dns", "true") {
		to = []string{"*"}
	}
	r.add(`raw -A OUTPUT -j ISTIO_OUTPUT_DNS`)
	r.each(f["owners"], `raw -A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner $item -j CT --zone 1
		raw -A ISTIO_OUTPUT_DNS -p udp --sport 15053 -m owner $item -j CT --zone 2`)
	r.each(to[:min(1, len(to))], `nat -A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS
		raw -A PREROUTING -j ISTIO_INBOUND`)
	r.each(to, `nat -A ISTIO_OUTPUT_DNS -p tcp --dport 53 -d $item -j REDIRECT --to-ports 15053`)
	r.each(to, `nat -A ISTIO_OUTPUT_DNS -p udp --dport 53 -d $item -j REDIRECT --to-port 15053`)
	r.each(to, `raw -A ISTIO_OUTPUT_DNS -p udp --dport 53 -d $item -j CT --zone 2
		raw -A ISTIO_INBOUND -p udp --sport 53 -s $item -j CT --zone 1`)
}
