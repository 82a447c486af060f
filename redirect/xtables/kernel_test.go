package xtables

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/iptables"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// withoutText leaves the places of the rules that were met, which are the same in each spelling.
func withoutText(f packet.Fate) packet.Fate {
	for i := range f.Met {
		f.Met[i].Rule = nil
	}
	return f
}

// ours is what our own dialect writes for a policy with about everything in it.
func ours(mode redirect.Mode) [2]string {
	cfg := redirect.Defaults()
	rules := redirect.Compile(redirect.Policy{
		Mode: mode, Ports: cfg.Ports, Proxy: cfg.Proxy, Marks: cfg.Marks, DropInvalid: true,
		Inbound: redirect.Inbound{All: true, ExcludePorts: []uint16{22, 80}},
		Outbound: redirect.Outbound{All: true, ExcludePorts: []uint16{443},
			ExcludeUIDs: redirect.IDs{{First: 100, Last: 200}}, ExcludeCIDRs: []netip.Prefix{
				netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fd00:168::/32")}},
		Groups: redirect.Groups{Include: []uint32{5, 100}},
		DNS: redirect.DNS{Capture: true, Servers: []netip.Addr{
			netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::a")}},
		ExcludeInterfaces: []redirect.Interface{"eth1"},
		VirtualInterfaces: []redirect.Interface{"net+"},
		Loopback:          netip.MustParsePrefix("127.0.0.1/32"),
		Passthrough:       []netip.Addr{cfg.PassthroughIPv4, cfg.PassthroughIPv6},
	})
	return [2]string{iptables.Render(rules, redirect.IPv4), iptables.Render(rules, redirect.IPv6)}
}

// TestWhatTheProgramsPrint loads listings with the real programs, and gives packets the fate that
// they have by what iptables-save prints.
func TestWhatTheProgramsPrint(t *testing.T) {
	netns.RequireRoot(t)
	t.Parallel()
	both := func(listing string) [2]string { return [2]string{listing, inIPv6(listing)} }
	for name, texts := range map[string][2]string{"redirect": both(redirecting), "resolving": both(resolving),
		"transparent": both(transparent + redirecting), "mixed": both(mixed),
		"ours": ours(redirect.ModeRedirect), "ours, transparent": ours(redirect.ModeTProxy)} {
		want, err := Read(texts[0], texts[1])
		if err != nil {
			t.Fatal(err)
		}
		want.Routed = []uint32{1337}
		for _, variant := range []string{"nft", "legacy"} {
			t.Run(name+"/"+variant, func(t *testing.T) {
				t.Parallel()
				ns := netns.New(t)
				ns.Run(t, texts[0], "iptables-"+variant+"-restore", "--noflush")
				ns.Run(t, texts[1], "ip6tables-"+variant+"-restore", "--noflush")
				for _, args := range [][]string{nil, {"-c"}} {
					ipv4 := ns.Run(t, "", "iptables-"+variant+"-save", args...)
					ipv6 := ns.Run(t, "", "ip6tables-"+variant+"-save", args...)
					got, err := Read(ipv4, ipv6)
					if err != nil {
						t.Fatalf("%s\n%s\n%s", err, ipv4, ipv6)
					}
					got.Routed = want.Routed
					sameFates(t, want, got)
				}
			})
		}
	}
}

func sameFates(t *testing.T, want, got *Tables) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		p := randomPacket(r)
		a, _ := want.Fate(p.Class())
		b, _ := got.Fate(p.Class())
		if a, b := withoutText(a), withoutText(b); !reflect.DeepEqual(a, b) {
			t.Fatalf("%+v (- as loaded, + as printed):\n%s", p, cmp.Diff(a, b))
		}
	}
}

// TestIncompatible needs the words that iptables-nft-save has for rules that it cannot show.
func TestIncompatible(t *testing.T) {
	netns.RequireRoot(t)
	t.Parallel()
	ns := netns.New(t)
	ns.Run(t, "table ip nat {\nchain OUTPUT {\ntype nat hook output priority -100\nmeta l4proto tcp ct mark set 5 redirect to :99\n}\n}", "nft", "-f", "-")
	if _, err := Read(ns.Run(t, "", "iptables-nft-save"), ""); err == nil {
		t.Error("read a listing that lacks a table")
	}
}
