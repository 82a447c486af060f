package backend

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
	"github.com/sidecar-cni/sidecar-cni/test/othertools"
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
	const istio = "istio-redirect of table inet istio-proxy-nat"
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
		"istio-init's own tables of nftables": {
			[][]string{{"nft", othertools.IstioNFT}},
			map[string]string{nft: istio, viaNFT: istio, legacy: istio},
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
				ns.Do(t, func() { got, err = OtherRules(backend) })
				if err != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q, %v; want %q", backend, got, err, want)
				}
			}
		})
	}
}
