package iptables

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// TestTryNamesWhatIsRefused asks for a feature that no kernel has: a jump to a chain that is not
// there.
func TestTryNamesWhatIsRefused(t *testing.T) {
	netns.RequireRoot(t)
	impossible := redirect.Feature{Name: "jumps to nowhere", Table: redirect.NAT,
		Rule: redirect.Rule{
			Why: "probe", Then: redirect.Action{Verb: redirect.Jump, Chain: "nowhere"},
		}}
	for _, v := range []Variant{NFT, Legacy} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			tables, err := Find(v)
			if err != nil {
				t.Fatal(err)
			}
			netns.New(t).Do(t, func() {
				for _, f := range redirect.Families {
					if err := tables.try(t.Context(), impossible, f); err == nil ||
						!strings.Contains(err.Error(), "nowhere") {
						t.Errorf("%s: %v: want an error about the chain nowhere", f, err)
					}
				}
			})
		})
	}
}

// TestFindWithoutPrograms says what to install.
func TestFindWithoutPrograms(t *testing.T) {
	if _, err := Find("nonesuch"); err == nil ||
		!strings.Contains(err.Error(), "install iptables 1.8 or later") {
		t.Errorf("find programs that do not exist: %v", err)
	}
}
