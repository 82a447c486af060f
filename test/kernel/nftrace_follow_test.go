package kernel

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// follow follows calls like one, makes it some times, and returns the ways and what answered.
func (p tracedPod) follow(t *testing.T, c call, times int) ([]nftrace.Way, []netns.Result) {
	t.Helper()
	sent := c.packet()
	f := nftrace.Filter{Protocol: c.proto, To: c.to, In: sent.In, Owner: sent.Owner, Rules: p.rules}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ways []nftrace.Way
	enough := errors.New("enough")
	var done sync.WaitGroup
	done.Go(func() {
		err := nftrace.Follow(ctx, p.opened, f, func(w nftrace.Way) error {
			if ways = append(ways, w); len(ways) == times {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Errorf("Follow: %v, after %d packets", err, len(ways))
		}
	})
	eventually(t, func() bool {
		for _, table := range listed(t, p.NS) {
			if strings.HasPrefix(table.Name, "sidecar-cni-trace-") {
				return true
			}
		}
		return false
	}, "want a tracing table")
	var results []netns.Result
	for range times {
		results = append(results, c.make(t, p.Pod, patient))
	}
	done.Wait()
	return ways, results
}

// Real packets are followed, and get where they go.
func TestRealPacketsAreFollowed(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	app := netns.Identity{UID: 1000, GID: 1000}
	tproxy, dns := matrix.Plain(), matrix.Plain()
	matrix.Options[0].Set(&tproxy)
	matrix.Proxy(&dns).Env["ISTIO_META_DNS_CAPTURE"] = "true"
	to := netip.MustParseAddrPort
	for name, row := range map[string]struct {
		request matrix.Request
		call    call
		times   int
	}{
		"out": {matrix.Plain(), call{from: "pod", as: app, proto: redirect.TCP,
			to: to("192.0.2.7:80")}, 5},
		"out, IPv6": {matrix.Plain(), call{from: "pod", as: app, proto: redirect.TCP,
			to: to("[2001:db8::7]:80")}, 2},
		"the proxy": {matrix.Plain(), call{from: "pod", as: netns.Identity{UID: 1337, GID: 1337},
			proto: redirect.TCP, to: to("192.0.2.7:80")}, 2},
		"in": {matrix.Plain(), call{from: "peer", proto: redirect.TCP, to: to("10.244.0.2:8080")}, 3},
		"in, transparent": {tproxy, call{from: "peer", proto: redirect.TCP,
			to: to("10.244.0.2:8080")}, 2},
		"within the pod": {matrix.Plain(), call{from: "pod", as: app, proto: redirect.TCP,
			to: to("10.244.0.2:8080")}, 2},
		"a name": {dns, call{from: "pod", as: app, proto: redirect.UDP, to: to("192.0.2.53:53")}, 2},
		"from a virtual machine": {matrix.Plain(), call{from: "vm", proto: redirect.TCP,
			to: to("192.0.2.7:80")}, 2},
	} {
		for _, d := range backendsWithReports(t) {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				policy, rs := compile(t, row.request)
				pod := newTracedPod(t, d, rs)
				listen(t, pod.Pod, policy)
				ways, results := pod.follow(t, row.call, row.times)
				for _, w := range ways {
					p := w.Packet()
					p.Owner = row.call.packet().Owner
					fate := simulate.Packet(rs, p)
					if same := w.Compare(fate); !same.Same || w.Lost > 0 {
						t.Errorf("%s\n  %s\n  %s", same.Says, drawWay(w), fate)
					}
				}
				for _, r := range results {
					want := row.call.want(simulate.Packet(rs, row.call.packet()), policy.Ports)
					if got := row.call.got(r); got != want {
						t.Errorf("answered %s, want %s", got, want)
					}
				}
			})
		}
	}
}

// Packets that a filter is not about are not followed.
func TestOtherPacketsAreNotFollowed(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	policy, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	listen(t, pod.Pod, policy)
	app := netns.Identity{UID: 1000, GID: 1000}
	asked := call{from: "pod", as: app, proto: redirect.TCP,
		to: netip.MustParseAddrPort("192.0.2.7:80")}
	ctx, cancel := context.WithCancel(t.Context())
	var ways []nftrace.Way
	var done sync.WaitGroup
	enough := errors.New("enough")
	done.Go(func() {
		err := nftrace.Follow(ctx, pod.opened, nftrace.Filter{Protocol: asked.proto, To: asked.to,
			Owner: &packet.Owner{UID: 1000, GID: 1000}, Rules: rs}, func(w nftrace.Way) error {
			ways = append(ways, w)
			return enough
		})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
	})
	eventually(t, func() bool { return len(listed(t, pod.NS)) == 2 }, "want a tracing table")
	const lastPort = 30777
	for _, change := range []func(*call){
		func(c *call) { c.to = netip.MustParseAddrPort("192.0.2.7:8080") },
		func(c *call) { c.to = netip.MustParseAddrPort("192.0.2.8:80") },
		func(c *call) { c.as = netns.Identity{UID: 1001, GID: 1000} },
		func(c *call) { c.as = netns.Identity{UID: 1000, GID: 1001} },
		func(*call) {}, // the one that is followed, at last
	} {
		c := asked
		if change(&c); c == asked {
			c.port = lastPort
		}
		c.make(t, pod.Pod, patient)
	}
	done.Wait()
	cancel()
	if len(ways) != 1 || ways[0].Source.Port() != lastPort {
		t.Errorf("followed %+v", ways)
	}
}

// What a tracer lacks a capability for is named.
func TestATracerNamesTheCapabilityThatItLacks(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	for name, row := range map[string]struct{ without, enters, want string }{
		"another user": {"-setuid,-setgid", "", "CAP_SETUID and CAP_SETGID"},
		"rules":        {"-net_admin", "", "CAP_NET_ADMIN"},
		"frames":       {"-net_raw", pod.Peer.Path(), "CAP_NET_RAW"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("setpriv", "--bounding-set", row.without, os.Args[0], "-test.run",
				"^TestTraceVictim$", "-test.timeout", "1m")
			cmd.Env = append(os.Environ(), victim+"="+pod.Path(), victim+"_PEER="+row.enters)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), row.want) {
				t.Errorf("%v, want it to name %s:\n%s", err, row.want, out)
			}
		})
	}
}
