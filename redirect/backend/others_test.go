package backend

import (
	"context"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// What a backend finds in a namespace and has not written itself. Chains that are no mesh's are
// nobody's business.
func TestWhichRulesAreAnothers(t *testing.T) {
	t.Parallel()
	const nft, viaNFT, legacy = redirect.NFTables, redirect.IptablesNFT, redirect.IptablesLegacy
	chain := func(family, table, name string) [][]string {
		return [][]string{
			{"nft", "add", "table", family, table},
			{"nft", "add", "chain", family, table, name},
		}
	}
	const ours, another = "ISTIO_OUTPUT of table inet sidecar-cni",
		"ISTIO_OUTPUT of table inet another"
	const inIP = "ISTIO_OUTPUT of table ip sidecar-cni"
	for name, row := range map[string]struct {
		commands [][]string
		want     map[string]string // by backend; "" is none
	}{
		"none": {nil, map[string]string{nft: "", viaNFT: "", legacy: ""}},
		"a chain of our table": {
			chain("inet", "sidecar-cni", "ISTIO_OUTPUT"),
			map[string]string{nft: "", viaNFT: ours, legacy: ours},
		},
		"a chain of our table, and one behind it": {
			append(chain("inet", "sidecar-cni", "ISTIO_OUTPUT"),
				chain("inet", "another", "ISTIO_OUTPUT")...),
			map[string]string{nft: another, viaNFT: "ISTIO_OUTPUT", legacy: "ISTIO_OUTPUT"},
		},
		"a chain of no mesh": {chain("inet", "another", "OUTPUT"),
			map[string]string{nft: "", viaNFT: "", legacy: ""}},
		"a mesh's chain in another table": {
			chain("inet", "another", "ISTIO_OUTPUT"),
			map[string]string{nft: another, viaNFT: another, legacy: another},
		},
		"a mesh's chain in a table of our name for one family": {
			chain("ip", "sidecar-cni", "ISTIO_OUTPUT"),
			map[string]string{nft: inIP, viaNFT: "", legacy: inIP},
		},
		"legacy chains of a mesh": {
			[][]string{{"iptables-legacy", "-t", "nat", "-N", "ISTIO_OUTPUT"}},
			map[string]string{nft: "ISTIO_OUTPUT", viaNFT: "ISTIO_OUTPUT", legacy: ""},
		},
		"legacy chains of a mesh, IPv6 only": {
			[][]string{{"ip6tables-legacy", "-t", "nat", "-N", "ISTIO_OUTPUT"}},
			map[string]string{nft: "ISTIO_OUTPUT", viaNFT: "ISTIO_OUTPUT", legacy: ""},
		},
		"legacy chains of no mesh": {
			[][]string{{"iptables-legacy", "-t", "nat", "-N", "DOCKER"}},
			map[string]string{nft: "", viaNFT: "", legacy: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := netns.New(t)
			for _, command := range row.commands {
				ns.Run(t, "", command[0], command[1:]...)
			}
			for backend, want := range row.want {
				var got string
				var err error
				ns.Do(t, func() { got, err = OtherRules(t.Context(), backend) })
				if err != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q, %v; want %q", backend, got, err, want)
				}
			}
		})
	}
}

// A program takes milliseconds, and most nodes have no legacy rules. With a context that is over,
// none can be run.
func TestWithoutLegacyTablesNoProgramIsRun(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ns := netns.New(t)
	for _, used := range []bool{false, true} {
		if used {
			ns.Run(t, "", "iptables-legacy", "-t", "nat", "-L")
		}
		var err error
		ns.Do(t, func() { _, err = OtherRules(over, redirect.NFTables) })
		if (err != nil) != used {
			t.Errorf("legacy tables %t: error %v", used, err)
		}
	}
}
