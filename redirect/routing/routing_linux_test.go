package routing

import (
	"net/netip"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// What Render prints is there after Apply, as iproute2 sees it, and gone after Remove.
func TestApplyDoesWhatRenderSays(t *testing.T) {
	t.Parallel()
	rs := redirect.Ruleset{Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.6/32")},
		Routes: []redirect.PolicyRoute{{Mark: 1337, Table: 133}}}
	ours, typed := netns.New(t), netns.New(t)
	for _, ns := range []*netns.NS{ours, typed} {
		ns.Run(t, "", "ip", "link", "set", "lo", "up")
	}
	before := listed(t, ours)
	var err error
	ours.Do(t, func() { _, err = Apply(rs) })
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range Render(rs) {
		typed.Run(t, "", "sh", "-c", command)
	}
	if have, want := listed(t, ours), listed(t, typed); have != want {
		t.Errorf("Apply left\n%s\nwhat Render says leaves\n%s", have, want)
	}
	ours.Do(t, func() { err = Remove(rs) })
	if after := listed(t, ours); err != nil || after != before {
		t.Errorf("%v, after Remove there is\n%s", err, after)
	}
}

// listed is what a namespace has of rules, routes, and addresses on lo.
func listed(t *testing.T, ns *netns.NS) string {
	t.Helper()
	all := ns.Run(t, "", "ip", "-brief", "address", "show", "dev", "lo")
	for _, family := range []string{"-4", "-6"} {
		all += ns.Run(t, "", "ip", family, "rule", "list") +
			ns.Run(t, "", "ip", family, "route", "list", "table", "all")
	}
	return all
}
