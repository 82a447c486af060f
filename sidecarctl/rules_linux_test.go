package main

import (
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// What rules prints is what nft and iptables take.
func TestRulesCanBeLoaded(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	pod := deployment("sidecar.istio.io/interceptionMode: TPROXY", "", "",
		"- {name: ISTIO_META_DNS_CAPTURE, value: \"true\"}")
	out, stderr, code := run(t.Context(), pod, "rules", "-f", "-")
	if code != 0 {
		t.Fatal(stderr)
	}
	ns := netns.New(t)
	ns.Run(t, out, "nft", "-f", "-")
	if got := ns.Run(t, "", "nft", "list", "ruleset"); !strings.Contains(got, "tproxy ip to :15006") {
		t.Errorf("nft has\n%s", got)
	}
	out, stderr, code = run(t.Context(), pod, "rules", "-f", "-", "--format", "iptables")
	if code != 0 {
		t.Fatal(stderr)
	}
	ipv4, ipv6, ok := strings.Cut(out, "# ip6tables-restore\n")
	if !ok {
		t.Fatalf("no part for ip6tables-restore:\n%s", out)
	}
	for program, input := range map[string]string{
		"iptables-nft": ipv4, "ip6tables-nft": ipv6,
	} {
		ns := netns.New(t)
		ns.Run(t, input, program+"-restore")
		if got := ns.Run(t, "", program+"-save"); !strings.Contains(got, "--on-port 15006") {
			t.Errorf("%s has\n%s", program, got)
		}
	}
}
