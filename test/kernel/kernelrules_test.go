package kernel

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// listed reads the namespace's rules.
func listed(t testing.TB, ns *netns.NS) []kernelrules.Table {
	t.Helper()
	var tables []kernelrules.Table
	ns.Do(t, func() {
		var err error
		if tables, err = kernelrules.Read(); err != nil {
			t.Fatal(err)
		}
	})
	return tables
}

// asNFT is a listing as nft prints it, counters and names of priorities aside.
func asNFT(text string) string {
	text = regexp.MustCompile(`counter packets \d+ bytes \d+`).ReplaceAllString(text, "counter")
	return regexp.MustCompile(`priority \S+;`).ReplaceAllString(text, "priority;")
}

// What is read of our table is what nft lists, for each option.
func TestKernelRulesAreWhatNFTLists(t *testing.T) {
	t.Parallel()
	d := dialectOf(t, redirect.NFTables)
	for _, r := range matrix.Alone() {
		t.Run(testName(r), func(t *testing.T) {
			t.Parallel()
			_, rs := compile(t, r)
			ns := netns.New(t)
			ns.RaiseLoopback(t)
			apply(t, d, ns, rs)
			var got strings.Builder
			for _, table := range listed(t, ns) {
				got.WriteString(table.String())
			}
			want := regexp.MustCompile(`(table|chain) (.*) \{ # handle \d+`).ReplaceAllString(
				ns.Run(t, "", "nft", "-a", "list", "ruleset"), "$1 $2 {")
			if diff := cmp.Diff(asNFT(want), asNFT(got.String())); diff != "" {
				t.Errorf("(-nft +read):\n%s", diff)
			}
		})
	}
}

// saved matches a rule as iptables-save prints it with counters: its chain, its comment and where
// it leads.
var saved = regexp.MustCompile(
	`(?m)^\[(\d+):(\d+)\] -A (\S+) .*--comment "sidecar-cni: ([^"]*)" -j (\S+)(.*)$`)

// What is read of legacy iptables is what its own program prints, for each option.
func TestLegacyRulesAreWhatIptablesPrints(t *testing.T) {
	t.Parallel()
	d := dialectOf(t, redirect.IptablesLegacy)
	for _, r := range matrix.Alone() {
		t.Run(testName(r), func(t *testing.T) {
			t.Parallel()
			_, rs := compile(t, r)
			ns := netns.New(t)
			ns.RaiseLoopback(t)
			apply(t, d, ns, rs)
			got := map[string][]string{}
			ns.Do(t, func() {
				tables, err := kernelrules.ReadLegacy()
				if err != nil {
					t.Fatal(err)
				}
				for _, table := range tables {
					legacyLines(got, table)
				}
			})
			ipv4, ipv6 := d.save(t, ns, "-c")
			want := map[string][]string{}
			for family, text := range map[string]string{"ip": ipv4, "ip6": ipv6} {
				for _, part := range strings.Split(text, "\n*")[1:] {
					table, _, _ := strings.Cut(part, "\n")
					for _, m := range saved.FindAllStringSubmatch(part, -1) {
						where := family + " " + table + " " + m[3]
						want[where] = append(want[where],
							strings.Join([]string{m[1], m[2], m[4], verb(m[5], m[6])}, " "))
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-iptables-save +read):\n%s", diff)
			}
		})
	}
}

// verb is what a target does, in nft's words.
func verb(target, parameters string) string {
	switch {
	case target == "RETURN", target == "DROP", target == "ACCEPT":
		return strings.ToLower(target)
	case strings.HasPrefix(target, "ISTIO_"):
		return "jump " + target
	}
	words := strings.FieldsFunc(parameters, func(r rune) bool { return r == ' ' || r == '/' })
	mark := func(text string) string {
		n, err := strconv.ParseUint(text, 0, 32)
		if err != nil {
			return text
		}
		return fmt.Sprintf("meta mark set 0x%08x", n)
	}
	switch {
	case target == "REDIRECT" && len(words) == 2:
		return "redirect to :" + words[1]
	case target == "TPROXY" && len(words) == 7:
		return "tproxy to :" + words[1] + " " + mark(words[5])
	case target == "MARK" && len(words) == 3:
		return mark(words[1])
	case target == "CONNMARK" && words[0] == "--save-mark":
		return "ct mark set meta mark"
	case target == "CONNMARK" && words[0] == "--restore-mark":
		return "meta mark set ct mark"
	case target == "CT" && words[0] == "--zone":
		return "ct zone set " + words[1]
	}
	return target + parameters
}

// legacyLines adds the rules of a table by chain: counters, comment and what they do.
func legacyLines(to map[string][]string, table kernelrules.Table) {
	for _, c := range table.Chains {
		for _, r := range c.Rules {
			_, does, _ := strings.Cut(r.Text, "counter ")
			where := table.Family + " " + table.Name + " " + c.Name
			to[where] = append(to[where], fmt.Sprint(r.Counter.Packets, " ", r.Counter.Bytes, " ",
				r.Comment, " ", does))
		}
	}
}

// The conditions of legacy rules are read as those of the same rules of iptables-nft are.
func TestLegacyConditionsAreThoseOfIptablesNFT(t *testing.T) {
	t.Parallel()
	for _, r := range matrix.Alone() {
		t.Run(testName(r), func(t *testing.T) {
			t.Parallel()
			_, rs := compile(t, r)
			old, young := netns.New(t), netns.New(t)
			apply(t, dialectOf(t, redirect.IptablesLegacy), old, rs)
			apply(t, dialectOf(t, redirect.IptablesNFT), young, rs)
			got, want := map[string][]string{}, map[string][]string{}
			old.Do(t, func() {
				tables, err := kernelrules.ReadLegacy()
				if err != nil {
					t.Fatal(err)
				}
				conditions(got, tables)
			})
			conditions(want, listed(t, young))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-iptables-nft +legacy):\n%s", diff)
			}
		})
	}
}

// conditions adds what rules ask for by chain, the words in alphabetical order: iptables-nft has
// another one.
func conditions(to map[string][]string, tables []kernelrules.Table) {
	for _, table := range tables {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				asks, _, _ := strings.Cut(r.Text, "counter ")
				words := strings.Fields(asks)
				slices.Sort(words)
				where := table.Family + " " + table.Name + " " + c.Name
				to[where] = append(to[where], strings.Join(words, " ")+" "+r.Comment)
			}
		}
	}
}
