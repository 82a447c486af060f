package nftables

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func ruleset(cidrs ...netip.Prefix) redirect.Ruleset {
	cfg := redirect.Defaults()
	return redirect.Compile(redirect.Policy{
		Mode: redirect.ModeRedirect, Ports: cfg.Ports, Proxy: cfg.Proxy, Marks: cfg.Marks,
		Inbound:     redirect.Inbound{All: true},
		Outbound:    redirect.Outbound{All: true, ExcludeCIDRs: cidrs},
		Groups:      redirect.Groups{All: true},
		Loopback:    netip.MustParsePrefix("127.0.0.1/32"),
		Passthrough: []netip.Addr{cfg.PassthroughIPv4, cfg.PassthroughIPv6},
	})
}

// what the namespace has that Apply writes.
func written(t *testing.T, ns *netns.NS) string {
	t.Helper()
	return ns.Run(t, "", "nft", "list", "ruleset") +
		ns.Run(t, "", "ip", "-brief", "address", "show", "dev", "lo")
}

// The kernel answers to what follows from a refusal, too. What is told is the rule.
func TestARefusalNamesTheRule(t *testing.T) {
	t.Parallel()
	rs := ruleset()
	i := slices.IndexFunc(rs.Chains,
		func(c redirect.Chain) bool { return c.Name == "ISTIO_OUTPUT" })
	nowhere := redirect.Rule{Why: "leads nowhere",
		Then: redirect.Action{Verb: redirect.Jump, Chain: "nowhere"}}
	rs.Chains[i].Rules = slices.Insert(slices.Clone(rs.Chains[i].Rules), 1, nowhere, nowhere)
	ns := netns.New(t)
	ns.Run(t, "", "ip", "link", "set", "lo", "up")
	before := written(t, ns)
	var err error
	ns.Do(t, func() { _, err = Apply(t.Context(), rs) })
	const want = `program nftables: chain ISTIO_OUTPUT: rule 3, "leads nowhere" (counter jump nowhere): no such file or directory`
	if err == nil || !strings.HasPrefix(err.Error(), want) ||
		strings.Count(err.Error(), "no such file") != 1 {
		t.Errorf("error %v; want %s", err, want)
	}
	if after := written(t, ns); after != before {
		t.Errorf("it left\n%s", after)
	}
}

// A long list is not what somebody wants to read in an event.
func TestARefusalIsShort(t *testing.T) {
	t.Parallel()
	var cidrs []netip.Prefix
	for i := range 250 {
		cidrs = append(cidrs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 17))
	}
	for _, c := range translate(ruleset(cidrs...)).chains {
		for i, s := range c.rules {
			if text := (place{c.name, i + 1, s}).String(); len(text) > 400 ||
				!strings.Contains(text, s.why) {
				t.Errorf("%d bytes: %s", len(text), text)
			}
		}
	}
}

func TestUndo(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.Run(t, "", "ip", "link", "set", "lo", "up")
	nothing := written(t, ns)
	var first, second func(*redirect.Ruleset)
	apply := func(undo *func(*redirect.Ruleset), rs redirect.Ruleset) (rules string) {
		var err error
		ns.Do(t, func() { *undo, err = Apply(t.Context(), rs) })
		if err != nil {
			t.Fatal(err)
		}
		return written(t, ns)
	}
	rules := apply(&first, ruleset())
	apply(&second, ruleset())
	ns.Do(t, func() { second(nil) })
	if after := written(t, ns); after != rules {
		t.Errorf("the first call's rules after the second was undone:\n%s", after)
	}
	ns.Do(t, func() { first(nil) })
	if after := written(t, ns); after != nothing {
		t.Errorf("after both were undone:\n%s", after)
	}
}

func TestNothingIsWrittenPastTheDeadline(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.Run(t, "", "ip", "link", "set", "lo", "up")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := written(t, ns)
	var err error
	ns.Do(t, func() { _, err = Apply(ctx, ruleset()) })
	if after := written(t, ns); err == nil || after != before {
		t.Errorf("error %v, rules\n%s", err, after)
	}
}
