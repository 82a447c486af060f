package backend

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/podns"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// What they write, test/kernel looks at.
func TestBackendsAreFoundByName(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	for _, name := range redirect.Backends {
		if _, err := Find(name); err != nil {
			t.Error(err)
		}
		if RunsPrograms(name) == (name == redirect.NFTables) {
			t.Errorf("%s runs programs: %t", name, RunsPrograms(name))
		}
	}
	for _, name := range []string{"", "iptables", "nft", "ebpf"} {
		if _, err := Find(name); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestANamespaceOfAnotherUserNamespaceGetsNFTables(t *testing.T) {
	t.Parallel()
	host, err := podns.FindHost("", "the test")
	if err != nil {
		t.Fatal(err)
	}
	for _, configured := range redirect.Backends {
		for want, ns := range map[string]*netns.NS{
			configured: netns.New(t), redirect.NFTables: netns.NewInUserNamespace(t),
		} {
			n, err := host.Open(ns.Path())
			if err != nil {
				t.Fatal(err)
			}
			if got := For(configured, n); got != want {
				t.Errorf("configured %s: %s, want %s", configured, got, want)
			}
			n.Close()
		}
	}
}

// TestModules has what the rules need by the names that the kernel gives to its modules.
func TestModules(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		redirect.NFTables: {"nf_tables", "nft_chain_nat", "nft_redir", "nft_ct", "nft_tproxy"},
		redirect.IptablesNFT: {"x_tables", "nf_tables", "nft_compat", "nft_chain_nat",
			"xt_REDIRECT", "xt_owner", "xt_multiport", "xt_conntrack", "xt_mark", "xt_connmark",
			"xt_TPROXY", "xt_CT"},
		redirect.IptablesLegacy: {"x_tables", "ip_tables", "iptable_nat", "iptable_mangle",
			"iptable_raw", "ip6_tables", "ip6table_nat", "ip6table_mangle", "ip6table_raw",
			"xt_REDIRECT", "xt_owner", "xt_multiport", "xt_conntrack", "xt_mark", "xt_connmark",
			"xt_TPROXY", "xt_CT"},
	} {
		var got []string
		for _, m := range Modules(name) {
			got = append(got, m.Name)
			if m.For == "" {
				t.Errorf("%s: nothing says what %s is for", name, m.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
