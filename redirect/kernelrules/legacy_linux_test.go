package kernelrules

import "testing"

// The kernel's sources have these, and iptables-nft writes its chains with them.
func TestPlacesOfLegacyTables(t *testing.T) {
	t.Parallel()
	for where, want := range map[[2]string]int32{
		{"raw", "prerouting"}: -300, {"raw", "output"}: -300,
		{"mangle", "prerouting"}: -150, {"mangle", "postrouting"}: -150,
		{"nat", "prerouting"}: -100, {"nat", "output"}: -100,
		{"nat", "input"}: 100, {"nat", "postrouting"}: 100,
		{"filter", "input"}: 0, {"filter", "forward"}: 0, {"security", "output"}: 50,
	} {
		if got := base(where[0], where[1]); got.Priority != want || got.Hook != where[1] ||
			(got.Type == "nat") != (where[0] == "nat") {
			t.Errorf("%s %s: %s, want priority %d", where[0], where[1], got, want)
		}
	}
}
