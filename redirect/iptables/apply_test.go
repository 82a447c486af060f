package iptables

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// eachVariant runs a test with the host's programs of either variant, in a namespace of its own.
func eachVariant(t *testing.T, test func(*testing.T, *Tables, *netns.NS)) {
	t.Helper()
	netns.RequireRoot(t)
	for _, v := range []Variant{NFT, Legacy} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			tables, err := Find(v)
			if err != nil {
				t.Fatal(err)
			}
			test(t, tables, netns.New(t))
		})
	}
}

// ruleset is what a pod may ask for; excluding a port makes it another.
func ruleset(exclude ...uint16) redirect.Ruleset {
	cfg := redirect.Defaults()
	return redirect.Compile(redirect.Policy{
		Mode: redirect.ModeTProxy, Ports: cfg.Ports, Proxy: cfg.Proxy, Marks: cfg.Marks,
		Inbound:     redirect.Inbound{All: true, ExcludePorts: []uint16{15020}},
		Outbound:    redirect.Outbound{All: true, ExcludePorts: exclude},
		Groups:      redirect.Groups{All: true},
		Loopback:    netip.MustParsePrefix("127.0.0.1/32"),
		Passthrough: []netip.Addr{cfg.PassthroughIPv4, cfg.PassthroughIPv6},
	})
}

// broken is a ruleset whose last table no kernel takes.
func broken() redirect.Ruleset {
	rs := ruleset(22)
	for i, c := range rs.Chains {
		if c.Table == redirect.Mangle && c.Hook == redirect.Output {
			rs.Chains[i].Rules = slices.Concat(c.Rules, []redirect.Rule{{
				Why: "leads nowhere", Then: redirect.Action{Verb: redirect.Jump, Chain: "nowhere"},
			}})
		}
	}
	return rs
}

// everything is what the namespace has that Apply writes.
func everything(t *testing.T, tables *Tables, ns *netns.NS) map[string]string {
	t.Helper()
	all := map[string]string{
		"rules":     ns.Run(t, "", "ip", "rule") + ns.Run(t, "", "ip", "-6", "rule"),
		"addresses": ns.Run(t, "", "ip", "-brief", "address", "show", "dev", "lo"),
	}
	for f, tools := range tables.tools {
		var kept []string
		for line := range strings.Lines(ns.Run(t, "", tools.save)) {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":ISTIO_") {
				line, _, _ = strings.Cut(line, " [")
				kept = append(kept, strings.TrimSpace(line))
			}
		}
		all[f.String()] = strings.Join(kept, "\n")
	}
	return all
}

func apply(t *testing.T, tables *Tables, ns *netns.NS,
	rs redirect.Ruleset) (undo func(), err error) {
	t.Helper()
	ns.Do(t, func() { undo, _, err = tables.Apply(t.Context(), rs) })
	return undo, err
}

// A failure leaves what was there before the call: nothing, or the rules of an earlier one.
func TestAFailureLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	refusals := map[string]func(t *testing.T, tables *Tables, ns *netns.NS){
		"a later table is refused": func(*testing.T, *Tables, *netns.NS) {},
		"the other family is another tool's": func(t *testing.T, tables *Tables, ns *netns.NS) {
			program := tables.tools[redirect.IPv6].iptables
			// an earlier call may have made it
			_, _ = ns.Try(t, "", program, "-t", "nat", "-N", "ISTIO_OUTPUT")
			ns.Run(t, "", program, "-t", "nat", "-A", "ISTIO_OUTPUT", "-j", "RETURN")
		},
	}
	for name, prepare := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachVariant(t, func(t *testing.T, tables *Tables, ns *netns.NS) {
				for _, earlier := range []bool{false, true} {
					if earlier {
						ns = netns.New(t)
						if _, err := apply(t, tables, ns, ruleset()); err != nil {
							t.Fatal(err)
						}
					}
					prepare(t, tables, ns)
					ns.Run(t, "", "ip", "link", "set", "lo", "up")
					before := everything(t, tables, ns)
					if _, err := apply(t, tables, ns, broken()); err == nil {
						t.Fatal("it was taken")
					}
					if diff := cmp.Diff(before, everything(t, tables, ns)); diff != "" {
						t.Errorf("rules of an earlier call %t (-before +after):\n%s", earlier, diff)
					}
				}
			})
		})
	}
}

// Whoever fails after Apply takes back what it did, and no more.
func TestUndo(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, tables *Tables, ns *netns.NS) {
		ns.Run(t, "", "ip", "link", "set", "lo", "up")
		nothing := everything(t, tables, ns)
		undo, err := apply(t, tables, ns, ruleset())
		if err != nil {
			t.Fatal(err)
		}
		first := everything(t, tables, ns)
		if first[redirect.IPv6.String()] == "" {
			t.Fatal("nothing was written")
		}
		second, err := apply(t, tables, ns, ruleset(443))
		if err != nil {
			t.Fatal(err)
		}
		if cmp.Equal(first, everything(t, tables, ns)) {
			t.Fatal("the second call changed nothing")
		}
		ns.Do(t, second)
		if diff := cmp.Diff(first, everything(t, tables, ns)); diff != "" {
			t.Errorf("after the second was undone (-first +now):\n%s", diff)
		}
		ns.Do(t, undo)
		if diff := cmp.Diff(nothing, everything(t, tables, ns)); diff != "" {
			t.Errorf("after both were undone (-nothing +now):\n%s", diff)
		}
	})
}

func TestTheDeadlineEndsThePrograms(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, tables *Tables, ns *netns.NS) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ns.Run(t, "", "ip", "link", "set", "lo", "up")
		before := everything(t, tables, ns)
		var err error
		ns.Do(t, func() { _, _, err = tables.Apply(ctx, ruleset()) })
		if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff(before, everything(t, tables, ns)); diff != "" {
			t.Errorf("it left (-before +after):\n%s", diff)
		}
	})
}

// The error shows the line of the input that it speaks of.
func TestARefusalShowsTheLine(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, tables *Tables, ns *netns.NS) {
		_, err := apply(t, tables, ns, broken())
		want := `that line is -A OUTPUT -m comment --comment "sidecar-cni: leads nowhere" -j nowhere`
		if tables.variant == NFT {
			want = "that line ends table mangle"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	})
}

func TestLineOf(t *testing.T) {
	t.Parallel()
	const input = "*nat\n-N A\n-A A -j RETURN\nCOMMIT\n*raw\n-A OUTPUT -j B\nCOMMIT\n"
	for complaint, want := range map[string]string{
		"iptables-legacy-restore: line 3 failed": "that line is -A A -j RETURN",
		"iptables-nft-restore v1.8.9 (nf_tables): line 6: RULE_APPEND failed (No such file or " +
			"directory): rule in chain OUTPUT": "that line is -A OUTPUT -j B",
		"Error occurred at line: 2": "that line is -N A",
		"Error occurred at line: 4": "that line ends table nat",
		"Error occurred at line: 7": "that line ends table raw",
		"line 0 failed":             "",
		"line 99 failed":            "",
		"line 99999999999999999999": "",
		"killed":                    "",
	} {
		if got := lineOf(complaint, input); got != want {
			t.Errorf("%s: %q, want %q", complaint, got, want)
		}
	}
}

// A host with iptables and without ip6tables redirects IPv4, and must not be silent about the rest.
func TestWithoutIP6Tables(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		address       string
		refused, warn bool
	}{
		"no IPv6 beside lo": {"", false, false},
		"link-local only":   {"fe80::7/64", false, true},
		"unique local":      {"fd00::7/64", true, false},
		"global":            {"2001:db8::7/64", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachVariant(t, func(t *testing.T, tables *Tables, ns *netns.NS) {
				delete(tables.tools, redirect.IPv6)
				ns.Run(t, "", "ip", "link", "add", "net1", "type", "bridge")
				if row.address != "" {
					ns.Run(t, "", "ip", "-6", "address", "add", row.address, "dev", "net1", "nodad")
				}
				var warnings []string
				var problems []redirect.Problem
				var err, verifyErr error
				ns.Do(t, func() {
					_, warnings, err = tables.Apply(t.Context(), ruleset())
					problems, verifyErr = tables.Verify(t.Context(), ruleset())
				})
				address, _, _ := strings.Cut(row.address, "/")
				if row.refused != (err != nil) ||
					err != nil && !strings.Contains(err.Error(), address) {
					t.Errorf("ADD: %v", err)
				}
				if row.refused != (len(problems) > 0) || verifyErr != nil ||
					row.refused && !strings.Contains(problems[0].What, address) {
					t.Errorf("CHECK: %v, %v", problems, verifyErr)
				}
				if row.warn != (len(warnings) == 1) ||
					row.warn && !strings.Contains(warnings[0], address) {
					t.Errorf("warnings %q", warnings)
				}
				var lacks []redirect.Lack
				ns.Do(t, func() { lacks = tables.Probe(t.Context()) })
				if len(lacks) != 1 || !lacks[0].Minor ||
					!strings.Contains(lacks[0].String(), "ip6tables-"+string(tables.variant)) {
					t.Errorf("the probe lacks %v", lacks)
				}
			})
		})
	}
}

// Size is what bounds a pod: it must be what the pod costs here.
func TestSizeCountsLines(t *testing.T) {
	t.Parallel()
	cfg := redirect.Defaults()
	pod := redirect.Pod{
		Namespace: "shop", Name: "web-0",
		Annotations: map[string]string{
			"sidecar.istio.io/status":                          "{}",
			"sidecar.istio.io/interceptionMode":                "TPROXY",
			"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8,172.16.0.0/12,2001:db8::/32",
			"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.1.0.0/16,2001:db8:1::/48,2001:db8:3::/48",
			"traffic.sidecar.istio.io/includeInboundPorts":     "80,443,8080",
			"traffic.sidecar.istio.io/includeOutboundPorts":    "5432,6379",
			"traffic.sidecar.istio.io/excludeOutboundPorts":    "22,25,9999",
			"traffic.sidecar.istio.io/excludeInterfaces":       "net1,net2",
			"istio.io/reroute-virtual-interfaces":              "vm1,vm2",
			"sidecar-cni.io/excludeOutboundUIDs":               "2000,3000-3010",
		},
		Nameservers: []netip.Addr{netip.MustParseAddr("10.96.0.10"),
			netip.MustParseAddr("fd00::10")},
		Spec: &redirect.Spec{Containers: []redirect.Container{{
			Name: "istio-proxy", Env: map[string]string{
				"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true",
				"ISTIO_OUTBOUND_OWNER_GROUPS": "101,102,103",
			},
		}}},
	}
	d, err := redirect.Decide(pod, cfg)
	if err != nil || d.Skip != "" {
		t.Fatal(d.Skip, err)
	}
	for name, rs := range map[string]redirect.Ruleset{"much": redirect.Compile(d.Policy),
		"usual": ruleset(22)} {
		lines := 0
		for _, f := range redirect.Families {
			lines += strings.Count(Render(rs, f), "\n-A ")
		}
		if rs.Size() != lines || lines == 0 {
			t.Errorf("%s: size %d, %d lines", name, rs.Size(), lines)
		}
	}
}
