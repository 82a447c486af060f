package compare_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables"
	"github.com/sidecar-cni/sidecar-cni/redirect/xtables/istioinit"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// lineMutant is a listing with one line changed. It has the number that is new in it, if any, as
// the match that asks for it.
type lineMutant struct {
	name  string
	lines []string
	asks  redirect.Match
}

var (
	portWord    = regexp.MustCompile(`(--dport|--sport|--to-ports?|--on-port) (\d+)`)
	idWord      = regexp.MustCompile(`--(uid|gid)-owner (\d+)`)
	networkWord = regexp.MustCompile(`-([sd]) ([0-9a-f.:]+/\d+)`)
	verbWord    = regexp.MustCompile(`-j (RETURN|ACCEPT|DROP)`)
	negatable   = regexp.MustCompile(`(! )?(-[sd] |--dport |--uid-owner |--gid-owner |--mark )`)
)

// lineMutants changes everything that can be changed about a listing, one thing at a time.
func lineMutants(text string) []lineMutant {
	lines := strings.Split(text, "\n")
	var all []lineMutant
	table := ""
	for i, line := range lines {
		if strings.HasPrefix(line, "*") {
			table = line
		}
		if !strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-I ") {
			continue
		}
		add := func(what, changed string, asks redirect.Match) {
			other := slices.Clone(lines)
			other[i] = changed
			all = append(all, lineMutant{fmt.Sprintf("%q: %s", line, what), other, asks})
		}
		add("deleted", "", redirect.Match{})
		if next := lines[i+1]; strings.Fields(next + " x y")[1] == strings.Fields(line)[1] {
			swapped := slices.Clone(lines)
			swapped[i], swapped[i+1] = next, line
			all = append(all, lineMutant{name: line + ": swapped with the next", lines: swapped})
		}
		changeNumbers(line, add)
		for _, verb := range []string{"RETURN", "ACCEPT", "DROP"} {
			if m := verbWord.FindStringSubmatch(line); m != nil && m[1] != verb &&
				(verb != "DROP" || table != "*nat") { // where iptables refuses it
				add("verb "+verb, verbWord.ReplaceAllString(line, "-j "+verb), redirect.Match{})
			}
		}
		for _, at := range negatable.FindAllStringSubmatchIndex(line, -1) {
			word := line[at[4]:at[5]]
			if at[2] < 0 {
				word = "! " + word
			}
			add("negated "+word, line[:at[0]]+word+line[at[1]:], redirect.Match{})
		}
	}
	return all
}

// changeNumbers adds one to a port and to an id, and makes a network twice as wide.
func changeNumbers(line string, add func(what, changed string, asks redirect.Match)) {
	if m := portWord.FindStringSubmatchIndex(line); m != nil {
		n, _ := strconv.ParseUint(line[m[4]:m[5]], 10, 16)
		add("port", line[:m[4]]+fmt.Sprint(n+1)+line[m[5]:], redirect.Match{
			DestinationPort: redirect.Ports{List: []uint16{uint16(n), uint16(n + 1)}},
			SourcePort:      redirect.Ports{List: []uint16{uint16(n), uint16(n + 1)}}})
	}
	if m := idWord.FindStringSubmatchIndex(line); m != nil {
		n, _ := strconv.ParseUint(line[m[4]:m[5]], 10, 32)
		ids := redirect.IDs{{First: uint32(n + 1), Last: uint32(n + 1)}}
		add("id", line[:m[4]]+fmt.Sprint(n+1)+line[m[5]:], redirect.Match{UID: ids, GID: ids})
	}
	if m := networkWord.FindStringSubmatchIndex(line); m != nil {
		p := netip.MustParsePrefix(line[m[4]:m[5]])
		p = netip.PrefixFrom(p.Addr(), max(p.Bits()-1, 1)).Masked()
		networks := redirect.Addresses{Prefixes: []netip.Prefix{p}}
		add("network", line[:m[4]]+p.String()+line[m[5]:],
			redirect.Match{Source: networks, Destination: networks})
	}
}

// Each change of a line of istio-init's is reported, or concerns no packet.
func TestEachChangeOfALineIsSeen(t *testing.T) {
	t.Parallel()
	for _, r := range matrix.Alone() {
		if !slices.Contains(changedPolicies, r.Name) {
			continue
		}
		t.Run(strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			args, env := matrix.IstioInit(r)
			written, err := istioinit.Write(args, env,
				istioinit.Pod{IPv6: true, Nameservers: r.Pod.Nameservers})
			if err != nil {
				t.Fatal(err)
			}
			rs := redirect.Compile(policyOf(t, r))
			read := func(ipv4, ipv6 string) (*xtables.Tables, error) {
				tables, err := xtables.Read(ipv4, ipv6)
				if err == nil {
					tables.Routed = written.Marks
				}
				return tables, err
			}
			whole, err := read(written.IPv4, written.IPv6)
			if err != nil {
				t.Fatal(err)
			}
			var c changesTried
			for _, text := range []string{written.IPv4, written.IPv6} {
				for _, m := range lineMutants(text) {
					texts := [2]string{written.IPv4, strings.Join(m.lines, "\n")}
					if text == written.IPv4 {
						texts = [2]string{texts[1], written.IPv6}
					}
					changed, err := read(texts[0], texts[1])
					if err != nil {
						t.Errorf("%s: %v", m.name, err)
						continue
					}
					c.try(t, whole, changed, m.name, func() enumeration {
						asks := redirect.Chain{Rules: []redirect.Rule{{If: m.asks}}}
						return enumerate(rs, redirect.Ruleset{Chains: []redirect.Chain{asks}})
					})
				}
			}
			c.report(t)
		})
	}
}
