package kernel

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/await"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// with returns the default pod with options on, by name.
func with(names ...string) matrix.Request {
	r := matrix.Plain()
	for _, name := range names {
		r = matrix.Options[slices.IndexFunc(matrix.Options,
			func(o matrix.Option) bool { return o.Name == name })].On(r)
	}
	return r
}

func inFamily(calls []call, f redirect.Family) []call {
	return slices.DeleteFunc(slices.Clone(calls),
		func(c call) bool { return redirect.FamilyOf(c.to.Addr()) != f })
}

// TestNobodyAnswersPastAProxyThatIsDown stops the proxy and makes every call that it would have
// had.
func TestNobodyAnswersPastAProxyThatIsDown(t *testing.T) {
	requests := []matrix.Request{with("dns"), with("tproxy", "dns everywhere"),
		with("tproxy", "include inbound ports")}
	inPodsWithNeighbours(t, requests,
		func(t *testing.T, pod *netns.Pod, p redirect.Policy, rs redirect.Ruleset) {
			for _, l := range listen(t, pod, p) {
				l.Close()
			}
			tried := map[packet.Outcome]int{}
			for _, c := range calls() {
				fate := simulate.Packet(rs, c.packet())
				if fate.Outcome == packet.Passes ||
					tried[fate.Outcome] >= 40 && c.from == "pod" || tried[fate.Outcome] >= 60 {
					continue
				}
				tried[fate.Outcome]++
				if r := c.make(t, pod, brief); r.Outcome == netns.Answered {
					t.Errorf("%s: answered: %s\n%s", c, r, fate)
				} else if fate.Outcome == packet.Handed && r.Outcome != netns.TimedOut {
					t.Errorf("%s: %s, want no answer at all\n%s", c, r, fate)
				}
			}
			if tried[packet.Redirected] == 0 ||
				p.Mode == redirect.ModeTProxy && tried[packet.Handed] == 0 {
				t.Errorf("too few calls tried: %v", tried)
			}
		})
}

// TestNamespacesAsTheyCome applies to namespaces in every state in which a pod's may be.
func TestNamespacesAsTheyCome(t *testing.T) {
	netns.RequireRoot(t)
	for _, tt := range []struct {
		name    string
		options netns.Options
	}{
		{"lo down", netns.Options{LoopbackDown: true}},
		{"IPv6 disabled", netns.Options{IPv6Disabled: true}},
		{"lo down and IPv6 disabled", netns.Options{LoopbackDown: true, IPv6Disabled: true}},
		{"another user namespace", netns.Options{UserNamespace: true}},
	} {
		for _, d := range dialects(t) {
			for _, r := range []matrix.Request{with("dns"), with("tproxy", "exclude uids")} {
				t.Run(tt.name+"/"+d.name+"/"+testName(r), func(t *testing.T) {
					t.Parallel()
					asItComes(t, tt.options, d, r)
				})
			}
		}
	}
}

func asItComes(t *testing.T, o netns.Options, d dialect, r matrix.Request) {
	t.Helper()
	p, rs := compile(t, r)
	pod := netns.NewPod(t, o)
	if o.UserNamespace && d.name != "nftables" {
		before := everything(t, d, pod.NS)
		var err error
		pod.Do(t, func() { err = d.apply(rs) })
		if err == nil || !strings.Contains(err.Error(), "hostUsers: false") {
			t.Errorf("apply in another user namespace: %v: want an error that names the cause", err)
		}
		if diff := cmp.Diff(before, everything(t, d, pod.NS)); diff != "" {
			t.Errorf("the refusal left something behind:\n%s", diff)
		}
		return
	}
	apply(t, d, pod.NS, rs)
	wantSilence(t, d, pod.NS, rs)
	families := redirect.Families
	if o.IPv6Disabled {
		families = families[:1]
	} else {
		awaitRoute(t, pod.NS, "::6")
	}
	listen(t, pod, p)
	all := calls()
	for _, f := range families {
		wantFates(t, pod, p, rs, everyNth(inFamily(all, f), 5))
	}
	apply(t, d, pod.NS, rs)
	wantSilence(t, d, pod.NS, rs)
	remove(t, d, pod.NS, rs)
}

func everyNth(all []call, n int) []call {
	var some []call
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// TestTProxyKeepsTheClient follows a connection through a transparent proxy: it sees the client's
// address, and so does the app that it calls as the client.
func TestTProxyKeepsTheClient(t *testing.T) {
	inPodsWithNeighbours(t, []matrix.Request{with("tproxy")},
		func(t *testing.T, pod *netns.Pod, p redirect.Policy, rs redirect.Ruleset) {
			listen(t, pod, p)
			for _, tt := range []struct{ client, pod netip.Addr }{
				{netns.PeerIPv4, netns.PodIPv4}, {netns.PeerIPv6, netns.PodIPv6},
			} {
				in := call{from: "peer", proto: redirect.TCP, to: netip.AddrPortFrom(tt.pod, 80)}
				r := in.make(t, pod, patient)
				if r.Who != "proxy" || r.Remote.Addr() != tt.client || r.Local != in.to {
					t.Errorf("%s: %s: want the proxy, called by %s for %s", in, r, tt.client, in.to)
				}
				// A proxy that runs as root keeps its own rules from catching this call; so it is
				// in the field.
				onward := netns.Call{As: netns.Identity{}, Network: "tcp", From: tt.client,
					Transparent: true, Mark: p.Marks.TProxy, To: in.to}
				if r := pod.Dial(t, onward); r.Who != "app" || r.Remote.Addr() != tt.client {
					t.Errorf("the proxy calls the app as %s: %s", tt.client, r)
				}
			}
		})
}

// TestPacketsWithoutASocket sends what no rule about owners can match: the kernel itself repeats
// the data of a connection whose process has gone, and connection tracking, having forgotten it,
// asks nat about it once more.
func TestPacketsWithoutASocket(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			_, rs := compile(t, matrix.Plain())
			pod := netns.NewPod(t, netns.Options{})
			apply(t, d, pod.NS, rs)
			to := netip.AddrPortFrom(netns.PodIPv4, 8080)
			fate := simulate.Packet(rs,
				packet.Packet{Out: "lo", Protocol: redirect.TCP, Source: to, Destination: to})
			if fate.Outcome != packet.Passes {
				t.Errorf("simulated: %s: want it left alone", fate)
			}
			orphan(t, pod, to)
			if !await.Within(time.Minute,
				func() bool { return count(t, d, pod.NS, "within the pod") >= 2 }) {
				t.Fatalf("no packet without a socket was left alone as being within the pod:\n%s", listCounted(t, d, pod.NS))
			}
			if n := count(t, d, pod.NS, "to the outbound listener of the proxy"); n != 0 {
				t.Errorf("%d packets without a socket were redirected", n)
			}
		})
	}
}

// orphan makes a connection over lo to a server that says nothing, has what it sends lost, and
// closes it.
func orphan(t *testing.T, pod *netns.Pod, to netip.AddrPort) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	address := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	pod.Do(t, func() {
		server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(err)
		t.Cleanup(func() { _ = unix.Close(server) })
		must(unix.Bind(server, address))
		must(unix.Listen(server, 1))
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(err)
		must(unix.Connect(client, address))
		pod.Run(t, "table ip lossy {\n chain input {\n type filter hook input priority 0;\n tcp "+
			"dport 8080 drop\n }\n}\n", "nft", "-f", "-")
		// more than a packet: what is repeated first must not end the connection
		_, err = unix.Write(client, make([]byte, 200<<10))
		must(err)
		must(unix.Close(client))
		must(netlink.ConntrackTableFlush(netlink.ConntrackTable))
	})
}

func listCounted(t *testing.T, d dialect, ns *netns.NS) string {
	if d.name == "nftables" {
		return ns.Run(t, "", "nft", "list", "table", "inet", "sidecar-cni")
	}
	return ns.Run(t, "", d.name+"-save", "-c")
}

// count returns how many packets met the rules of that reason.
func count(t *testing.T, d dialect, ns *netns.NS, why string) int {
	counter := regexp.MustCompile(`(?:packets |^\[)(\d+)`)
	sum := 0
	for line := range strings.Lines(listCounted(t, d, ns)) {
		if m := counter.FindStringSubmatch(line); m != nil && strings.Contains(line, why+`"`) {
			n, _ := strconv.Atoi(m[1])
			sum += n
		}
	}
	return sum
}

// TestAFailureLeavesNothing asks for rules that the kernel refuses, behind addresses and routes
// that it takes; of one of them it refuses only the IPv6 half.
func TestAFailureLeavesNothing(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		for name, match := range map[string]redirect.Match{"both families": {},
			"IPv6": {Destination: nets("2001:db8::/32")}} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				_, rs := compile(t, with("tproxy"))
				rs.Chains = append(slices.Clone(rs.Chains),
					redirect.Chain{Table: redirect.NAT, Name: "ISTIO_BROKEN",
						Rules: []redirect.Rule{
							{Why: "leads nowhere", If: match,
								Then: redirect.Action{Verb: redirect.Jump,
									Chain: "ISTIO_NONESUCH"}},
						}})
				ns := netns.New(t)
				ns.RaiseLoopback(t)
				before := everything(t, d, ns)
				var err error
				ns.Do(t, func() { err = d.apply(rs) })
				if err == nil {
					t.Fatal("the kernel took a jump to nowhere")
				}
				if diff := cmp.Diff(before, everything(t, d, ns)); diff != "" {
					t.Errorf("apply failed (%v) and left (-before +after):\n%s", err, diff)
				}
			})
		}
	}
}

// TestAnswersOfNameserversAreTold counts the packets that only come back: both halves of a captured
// exchange.
func TestAnswersOfNameserversAreTold(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			policy, rs := compile(t, with("dns"))
			pod := netns.NewPod(t, netns.Options{})
			apply(t, d, pod.NS, rs)
			listen(t, pod, policy)
			wantFates(t, pod, policy, rs,
				[]call{asks(app, "192.0.2.53:53"), asks(proxyUser, "192.0.2.53:53")})
			for _, why := range []string{"the app asks the proxy", "the proxy answers the app",
				"the proxy asks the nameserver", "the nameserver answers"} {
				if count(t, d, pod.NS, why) == 0 {
					t.Errorf("no packet met %q:\n%s", why, listCounted(t, d, pod.NS))
				}
			}
		})
	}
}

// TestInvalidPacketsAreDropped answers a question that the pod never asked. Its kernel would say so
// with a reset.
func TestInvalidPacketsAreDropped(t *testing.T) {
	netns.RequireRoot(t)
	for _, d := range dialects(t) {
		for name, r := range map[string]matrix.Request{"dropped": with("drop invalid"),
			"let in": matrix.Plain()} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				policy, rs := compile(t, r)
				pod := netns.NewPod(t, netns.Options{})
				apply(t, d, pod.NS, rs)
				invalid := call{from: "peer", proto: redirect.TCP,
					to: netip.AddrPortFrom(netns.PodIPv4, 80)}.packet()
				invalid.State = redirect.Invalid
				if dropped := simulate.Packet(rs, invalid).
					Outcome == packet.Dropped; dropped != policy.DropInvalid {
					t.Errorf("simulated: dropped %t", dropped)
				}
				if reset := unasked(t, pod); reset == policy.DropInvalid {
					t.Errorf("an answer that nobody asked for was reset: %t", reset)
				}
			})
		}
	}
}

// unasked sends SYN and ACK at once from the peer and reports whether a reset comes back.
func unasked(t *testing.T, pod *netns.Pod) (reset bool) {
	t.Helper()
	pod.Peer.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		timeout := unix.NsecToTimeval(int64(300 * time.Millisecond))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&timeout); err != nil {
			t.Fatal(err)
		}
		segment := synAck(netns.PeerIPv4, netns.PodIPv4)
		if err := unix.Sendto(fd, segment, 0,
			&unix.SockaddrInet4{Addr: netns.PodIPv4.As4()}); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1500)
		const ipHeader, flags, rst = 20, 13, 4
		n, _, err := unix.Recvfrom(fd, answer, 0)
		reset = err == nil && n > ipHeader+flags && answer[ipHeader+flags]&rst != 0
	})
	return reset
}

// synAck is a segment from port 4000 to port 80.
func synAck(from, to netip.Addr) []byte {
	segment := []byte{0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x12, 0xff, 0xff, 0, 0, 0,
		0}
	source, destination := from.As4(), to.As4()
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(segment))
	for _, bytes := range [][]byte{source[:], destination[:], segment} {
		for i := 0; i < len(bytes); i += 2 {
			sum += uint32(bytes[i])<<8 | uint32(bytes[i+1])
		}
	}
	sum = sum&0xffff + sum>>16
	sum += sum >> 16
	segment[16], segment[17] = byte(^sum>>8), byte(^sum)
	return segment
}
