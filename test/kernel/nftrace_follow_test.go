package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/kernelrules"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftrace"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// followed follows packets like those of a call while others are made, until one is enough.
func (p tracedPod) followed(t *testing.T, like call, calls func(),
	found func(nftrace.Way) (enough bool)) {
	t.Helper()
	sent := like.packet()
	f := nftrace.Filter{Protocol: like.proto, To: like.to, In: sent.In, Rules: p.rules}
	if o := sent.Owner; o != nil {
		f.Of = []nftrace.Owner{{UID: &o.UID, GID: &o.GID}}
	}
	enough := errors.New("enough")
	var done sync.WaitGroup
	done.Go(func() {
		err := nftrace.Follow(t.Context(), p.opened, f, func(w nftrace.Way) error {
			if found(w) {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Errorf("Follow: %v", err)
		}
	})
	await.Until(t, "there is a tracing table", func() bool {
		return slices.ContainsFunc(listed(t, p.NS), func(table kernelrules.Table) bool {
			return strings.HasPrefix(table.Name, "sidecar-cni-trace-")
		})
	})
	calls()
	done.Wait()
}

// follow follows calls like one, makes it some times, and returns the ways and what answered.
func (p tracedPod) follow(t *testing.T, c call, times int) ([]nftrace.Way, []netns.Result) {
	t.Helper()
	var ways []nftrace.Way
	var results []netns.Result
	p.followed(t, c, func() {
		for range times {
			results = append(results, c.make(t, p.Pod, patient))
		}
	}, func(w nftrace.Way) bool {
		ways = append(ways, w)
		return len(ways) == times
	})
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
	const lastPort = 30777
	var ways []nftrace.Way
	pod.followed(t, asked, func() {
		for _, change := range []func(*call){
			func(c *call) { c.to = netip.MustParseAddrPort("192.0.2.7:8080") },
			func(c *call) { c.to = netip.MustParseAddrPort("192.0.2.8:80") },
			func(c *call) { c.as = netns.Identity{UID: 1001, GID: 1000} },
			func(c *call) { c.as = netns.Identity{UID: 1000, GID: 1001} },
			func(c *call) { c.port = lastPort }, // which is followed, at last
		} {
			c := asked
			change(&c)
			c.make(t, pod.Pod, patient)
		}
	}, func(w nftrace.Way) bool {
		ways = append(ways, w)
		return true
	})
	if len(ways) != 1 || ways[0].Source.Port() != lastPort {
		t.Errorf("followed %+v", ways)
	}
}

// Of an exchange of datagrams the first is followed: of the others no chain of type nat is asked.
func TestTheFirstDatagramIsFollowed(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	r := matrix.Plain()
	matrix.Proxy(&r).Env["ISTIO_META_DNS_CAPTURE"] = "true"
	policy, rs := compile(t, r)
	for _, to := range []string{"192.0.2.53:53", "[2001:db8::7]:53"} { // one captured, one not
		pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
		listen(t, pod.Pod, policy)
		one := call{from: "pod", as: netns.Identity{UID: 1000, GID: 1000}, proto: redirect.UDP,
			to: netip.MustParseAddrPort(to), port: 30001}
		another := one
		another.port = 30002
		var ports []uint16
		pod.followed(t, one, func() {
			for _, c := range []call{one, one, one, another} {
				c.make(t, pod.Pod, patient)
			}
		}, func(w nftrace.Way) (enough bool) {
			ports = append(ports, w.Source.Port())
			return w.Source.Port() == another.port
		})
		if !slices.Equal(ports, []uint16{one.port, another.port}) {
			t.Errorf("to %s: followed the packets from ports %v", to, ports)
		}
	}
}

// What a tracer lacks a capability for is named.
func TestATracerNamesTheCapabilityThatItLacks(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	for name, row := range map[string]struct{ without, want string }{
		"another user": {"-setuid,-setgid", "CAP_SETUID and CAP_SETGID"},
		"rules":        {"-net_admin", "CAP_NET_ADMIN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("setpriv", "--bounding-set", row.without, os.Args[0], "-test.run",
				"^TestTraceVictim$", "-test.timeout", "1m")
			cmd.Env = append(os.Environ(), victim+"="+pod.Path())
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), row.want) {
				t.Errorf("%v, want it to name %s:\n%s", err, row.want, out)
			}
		})
	}
}

// A tracer that may not send frames has the node send a peer's packet, from its own address.
func TestAPeersPacketWithoutTheRightToSendFrames(t *testing.T) {
	t.Parallel()
	netns.RequireRoot(t)
	_, rs := compile(t, matrix.Plain())
	pod := newTracedPod(t, dialectOf(t, redirect.NFTables), rs)
	pod.Run(t, escapes, "nft", "-f", "-")
	cmd := exec.Command("setpriv", "--bounding-set", "-net_raw", os.Args[0], "-test.run",
		"^TestTraceVictim$", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), victim+"="+pod.Path(), victim+"_PEER="+pod.Peer.Path(),
		victim+"_ONCE=1")
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("TCP %s:", netns.PeerIPv4)
	if err != nil || !strings.Contains(string(out), want) ||
		!strings.Contains(string(out), "it stays in the pod, at 10.244.0.2:15006") {
		t.Errorf("%v, want a packet from %s that is redirected:\n%s", err, netns.PeerIPv4, out)
	}
	pod.wantNoEscapes(t)
}
