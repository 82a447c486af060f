package kernel

import (
	"regexp"
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
