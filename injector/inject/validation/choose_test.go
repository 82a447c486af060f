package validation

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

func policyOfRequest(t testing.TB, r matrix.Request) redirect.Policy {
	t.Helper()
	d, err := redirect.Decide(r.Pod, r.Config)
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("%s: not ours: %+v, %v", r.Name, d, err)
	}
	return d.Policy
}

// many returns a request of several options.
func many(random *rand.Rand) matrix.Request {
	r, keys := matrix.Plain(), map[string]bool{}
	for range 2 + random.IntN(8) {
		o := matrix.Options[random.IntN(len(matrix.Options))]
		if !keys[o.Key] {
			keys[o.Key] = true
			r = o.On(r)
		}
	}
	return r
}

// Every policy brings the chosen calls to the inbound port, from whichever port they are made, and
// those to the pod's own address too, which stand in where the pod lacks ::6. What follows the
// first packet passes. Without rules they go where they are meant to go.
func TestChosenCallsAreRedirected(t *testing.T) {
	t.Parallel()
	requests := slices.Concat(matrix.Alone(), matrix.Pairs())
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		requests = append(requests, many(random))
	}
	for _, r := range requests {
		p := policyOfRequest(t, r)
		calls, err := choose(p, nil)
		if err != nil || len(calls) != len(families) {
			t.Errorf("%s: %v, %v", r.Name, calls, err)
			continue
		}
		rules, none := simulate.New(redirect.Compile(p)), simulate.New(redirect.Ruleset{})
		for _, c := range calls {
			var made []call
			if !c.to.Addr().IsUnspecified() {
				made = append(made, c)
			}
			for _, own := range addresses(c.from) {
				made = append(made, call{own, netip.AddrPortFrom(own, c.to.Port())})
			}
			for _, c := range made {
				wantArrival(t, r.Name, p, rules, c)
				if arrives(none, p, c) {
					t.Errorf("%s: %s arrives without rules", r.Name, c)
				}
			}
		}
	}
}

// addresses are some that a pod may have.
func addresses(from netip.Addr) []netip.Addr {
	if from.Is4() {
		return []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("198.51.100.7"),
			netip.MustParseAddr("203.0.113.7")}
	}
	return []netip.Addr{netip.MustParseAddr("fd00:244::2"), netip.MustParseAddr("2001:db8:c::7")}
}

func wantArrival(t *testing.T, name string, p redirect.Policy, rules *simulate.Rules, c call) {
	t.Helper()
	owner := &packet.Owner{UID: p.Proxy.UIDs[0], GID: p.Proxy.GIDs[0]}
	for _, port := range []uint16{1024, 32768, 53535, 60999, 65535} {
		source := netip.AddrPortFrom(c.from, port)
		first := packet.Packet{Out: lo, Protocol: redirect.TCP, Source: source, Destination: c.to,
			Owner: owner}
		fate, _ := rules.Fate(first.Class())
		if fate.Outcome != packet.Redirected || fate.Port != p.Ports.Inbound {
			t.Errorf("%s: %s: want port %d: %s", name, c, p.Ports.Inbound, fate)
		}
		answer := packet.Packet{Out: lo, Protocol: redirect.TCP, Owner: owner, Destination: source,
			State: redirect.Established, Source: netip.AddrPortFrom(c.from, p.Ports.Inbound)}
		fate, _ = rules.Fate(answer.Class())
		if fate.Outcome != packet.Passes {
			t.Errorf("%s: the answer to %s: %s", name, c, fate)
		}
	}
}

// A port that is excluded, or that somebody has, shows nothing.
func TestThePortIsNobodys(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		exclude string
		taken   []uint16
		ports   redirect.Listen // zero: the usual ones
		want    uint16
	}{
		"usually":           {want: 15002},
		"excluded":          {exclude: "80,15002,15004", want: 15003},
		"a container's":     {exclude: "15004", taken: []uint16{15002, 15003}, want: 15005},
		"the proxy's":       {ports: redirect.Listen{Outbound: 15002, Inbound: 15003, Tunnel: 15004, DNS: 15005}, want: 15006},
		"beyond the last":   {taken: ports(15002, 65535), want: 1},
		"not name service":  {taken: slices.Concat(ports(15002, 65535), ports(1, 52)), want: 54},
		"the only one left": {taken: slices.Concat(ports(15002, 65535), ports(1, 15000)), want: 0},
	} {
		r := matrix.Plain()
		r.Pod.Annotations[matrix.Traffic+"excludeOutboundPorts"] = row.exclude
		if row.ports != (redirect.Listen{}) {
			r.Config.Ports = row.ports
		}
		p := policyOfRequest(t, r)
		if port, ok := freePort(p, row.taken); port != row.want || ok != (row.want != 0) {
			t.Errorf("%s: port %d, %t, want %d", name, port, ok, row.want)
		}
	}
}

func ports(first, last int) []uint16 {
	var all []uint16
	for port := first; port <= last; port++ {
		all = append(all, uint16(port))
	}
	return all
}

func TestTheDestination(t *testing.T) {
	t.Parallel()
	for loopback, want := range map[string][]string{
		"":             {"127.0.0.1>127.0.0.6:15002", "::1>[::6]:15002"},
		"127.0.0.8/29": {"127.0.0.1>127.0.0.6:15002", "::1>[::6]:15002"},
		"127.0.0.0/29": {"127.0.0.1>0.0.0.0:15002", "::1>[::6]:15002"},
		"127.0.0.0/8":  {"127.0.0.1>0.0.0.0:15002", "::1>[::6]:15002"},
	} {
		r := matrix.Plain()
		if loopback != "" {
			matrix.Proxy(&r).Env["ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"] = loopback
		}
		calls, err := choose(policyOfRequest(t, r), nil)
		var got []string
		for _, c := range calls {
			got = append(got, c.String())
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", loopback, err, diff)
		}
	}
}

// Where nothing can show that the pod is redirected, the error says which setting is in the way.
func TestNoCallIsRedirected(t *testing.T) {
	t.Parallel()
	for key, values := range map[string][]string{
		"excludeInterfaces":    {"lo", "eth1,lo", "l+"},
		"excludeOutboundPorts": {""}, // where all the others are taken
	} {
		for _, value := range values {
			r := matrix.Plain()
			r.Pod.Annotations[matrix.Traffic+key] = value
			p := policyOfRequest(t, r)
			var taken []uint16
			if value == "" {
				taken = ports(1, 65535)
			}
			calls, err := choose(p, taken)
			if err == nil {
				t.Errorf("%s %q: %v, want an error", key, value, calls)
				continue
			}
			for _, part := range []string{matrix.Traffic + key, "injector.guard to none"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s %q: %v, want it to name %s", key, value, err, part)
				}
			}
		}
	}
	r := matrix.Plain() // an interface whose name only begins so
	r.Pod.Annotations[matrix.Traffic+"excludeInterfaces"] = "lo0"
	if _, err := choose(policyOfRequest(t, r), nil); err != nil {
		t.Error(err)
	}
}
