package backend

import (
	"strings"
	"testing"

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
