package netns_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

var app = netns.Identity{UID: 1234, GID: 1234}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func tcp(to string) netns.Call { return netns.Call{Network: "tcp", To: at(to)} }
func udp(to string) netns.Call { return netns.Call{Network: "udp", To: at(to)} }

// wantReport compares all of a report but the caller's address.
func wantReport(t *testing.T, got netns.Result, want netns.Report) {
	t.Helper()
	if got.Outcome != netns.Answered {
		t.Errorf("call %v, want %v", got, want)
		return
	}
	if diff := cmp.Diff(want, got.Report, cmpopts.EquateComparable(netip.AddrPort{}),
		cmpopts.IgnoreFields(want, "Remote")); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func wantOutcome(t *testing.T, got netns.Result, want netns.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("call %v, want %v", got, want)
	}
}

// peerTCP is the report of the peer on a connection to an address.
func peerTCP(to string) netns.Report {
	local := netip.AddrPortFrom(netns.PeerIPv4, 1)
	if at(to).Addr().Is6() {
		local = netip.AddrPortFrom(netns.PeerIPv6, 1)
	}
	return netns.Report{Who: "peer", Port: 1, Original: at(to), Local: local}
}

func peerUDP(to string) netns.Report { return netns.Report{Who: "peer", Port: 53, Local: at(to)} }

func TestPeerAnswersForTheWorld(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	for _, to := range []string{
		"10.244.0.1:80", "192.0.2.7:1", "8.8.8.8:65535", "[fd00:244::1]:80", "[2001:db8:7::7]:22",
		"[2606:4700::1]:443",
	} {
		wantReport(t, pod.Dial(t, tcp(to)), peerTCP(to))
	}
	for _, to := range []string{"10.244.0.1:53", "8.8.8.8:53", "[fd00:244::1]:53",
		"[2001:4860:4860::8888]:53"} {
		wantReport(t, pod.Dial(t, udp(to)), peerUDP(to))
	}
	for _, to := range []string{"8.8.8.8:54", "[2001:4860:4860::8888]:54"} {
		wantOutcome(t, pod.Dial(t, udp(to)), netns.Refused)
	}
}

func TestVMReachesTheWorldThroughThePod(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	for to, from := range map[string]netip.Addr{
		"192.0.2.7:80": netns.VMIPv4, "[2001:db8:7::7]:80": netns.VMIPv6,
		"10.244.0.1:80": netns.VMIPv4, "[fd00:244::1]:80": netns.VMIPv6,
	} {
		got := pod.VM.Dial(t, tcp(to))
		wantReport(t, got, peerTCP(to))
		if got.Remote.Addr() != from {
			t.Errorf("the peer was called by %v, want %v", got.Remote, from)
		}
	}
	wantReport(t, pod.VM.Dial(t, udp("8.8.8.8:53")), peerUDP("8.8.8.8:53"))
	wantReport(t, pod.VM.Dial(t, udp("[2001:db8::8]:53")), peerUDP("[2001:db8::8]:53"))
}

func TestPeerAndVMReachThePod(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	server := pod.Listen(t, netns.Listener{Who: "app", As: app, TCP: []uint16{8080},
		UDP: []uint16{8080}})
	calls := []struct {
		from *netns.NS
		addr netip.Addr
	}{
		{pod.Peer, netns.PodIPv4}, {pod.Peer, netns.PodIPv6}, {pod.VM, netns.ExtraIPv4},
		{pod.VM, netns.ExtraIPv6},
		{pod.NS, netip.MustParseAddr("127.0.0.1")}, {pod.NS, netip.IPv6Loopback()},
	}
	for _, c := range calls {
		to := netip.AddrPortFrom(c.addr, 8080).String()
		want := netns.Report{Who: "app", Port: 8080, Local: at(to)}
		wantReport(t, c.from.Dial(t, udp(to)), want)
		wantReport(t, c.from.Dial(t, tcp(to)), want)
	}
	server.Close()
	for _, c := range calls {
		to := netip.AddrPortFrom(c.addr, 8080).String()
		wantOutcome(t, c.from.Dial(t, tcp(to)), netns.Refused)
		wantOutcome(t, c.from.Dial(t, udp(to)), netns.Refused)
	}
}

func TestCallerMayUseAnAddressThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	pod.Listen(t, netns.Listener{Who: "app", TCP: []uint16{80}})
	for to, from := range map[string]string{"10.244.0.2:80": "198.51.100.9",
		"[fd00:244::2]:80": "2001:db8:51::9"} {
		call := tcp(to)
		call.From = netip.MustParseAddr(from)
		wantOutcome(t, pod.Peer.Dial(t, call), netns.Failed)
		call.Transparent = true
		got := pod.Peer.Dial(t, call)
		wantReport(t, got, netns.Report{Who: "app", Port: 80, Local: at(to)})
		if got.Remote.Addr() != call.From {
			t.Errorf("the pod was called by %v, want %v", got.Remote, call.From)
		}
	}
}

// Each rule takes one half of an identity away from the peer: whoever has neither still reaches it.
func TestSocketsHaveTheCallersIdentity(t *testing.T) {
	t.Parallel()
	for _, o := range []netns.Options{{}, {UserNamespace: true}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			t.Parallel()
			pod := netns.NewPod(t, o)
			pod.Run(t, `table inet test { chain out { type nat hook output priority -100
				meta l4proto tcp meta skuid 1234 redirect to :7777
				meta l4proto tcp meta skgid 4321 redirect to :7778; }; }`, "nft", "-f", "-")
			pod.Listen(t, netns.Listener{Who: "proxy", TCP: []uint16{7777, 7778}})
			for _, to := range []string{"192.0.2.7:80", "[2001:db8:7::7]:80"} {
				redirected := netns.Report{Who: "proxy", Port: 7777, Original: at(to),
					Local: at("127.0.0.1:7777")}
				if at(to).Addr().Is6() {
					redirected.Local = at("[::1]:7777")
				}
				call := tcp(to)
				for _, untouched := range []netns.Identity{{}, {UID: 1235, GID: 1234},
					{UID: 4321, GID: 4320}} {
					call.As = untouched
					wantReport(t, pod.Dial(t, call), peerTCP(to))
				}
				call.As = netns.Identity{UID: 1234, GID: 4320}
				wantReport(t, pod.Dial(t, call), redirected)

				call.As = netns.Identity{UID: 1235, GID: 4321}
				redirected.Port, redirected.Local = 7778,
					netip.AddrPortFrom(redirected.Local.Addr(), 7778)
				wantReport(t, pod.Dial(t, call), redirected)
			}
		})
	}
}

// A report over TCP is a packet of the accepted socket, not of the listening one.
func TestListenersHaveAnIdentity(t *testing.T) {
	t.Parallel()
	for _, o := range []netns.Options{{}, {UserNamespace: true}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			t.Parallel()
			pod := netns.NewPod(t, o)
			pod.Run(t, `table inet test {
				chain out { type filter hook output priority 0
					tcp flags & (syn|ack|psh|fin) == ack|psh meta skuid 1337 meta skgid 7331 counter name accepted
					meta l4proto udp meta skuid 1337 meta skgid 7331 counter name datagrams; }
				counter accepted { packets 0 bytes 0; }
				counter datagrams { packets 0 bytes 0; }
			}`, "nft", "-f", "-")
			pod.Listen(t, netns.Listener{Who: "proxy", As: netns.Identity{UID: 1337, GID: 7331},
				TCP: []uint16{80}, UDP: []uint16{80}})
			wantOutcome(t, pod.Peer.Dial(t, tcp("10.244.0.2:80")), netns.Answered)
			wantOutcome(t, pod.Peer.Dial(t, udp("10.244.0.2:80")), netns.Answered)
			got := pod.Run(t, "", "nft", "list", "counters")
			if strings.Count(got, "packets 1 ") != 2 {
				t.Errorf("want one packet from an accepted socket and one datagram of 1337:7331, got\n%s", got)
			}
		})
	}
}

func TestMarkIsOnThePackets(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	pod.Run(t, `table inet test { chain out { type filter hook output priority 0
		meta mark 5 meta l4proto tcp reject with tcp reset
		meta mark 6 drop; }; }`, "nft", "-f", "-")
	call := tcp("192.0.2.7:80")
	wantOutcome(t, pod.Dial(t, call), netns.Answered)
	call.Mark = 5
	wantOutcome(t, pod.Dial(t, call), netns.Refused)
	call.Mark, call.Timeout = 6, 20*time.Millisecond
	wantOutcome(t, pod.Dial(t, call), netns.TimedOut)
}

func TestTransparentListenerSeesTheAddressCalled(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	pod.Run(t, `table inet test { chain in { type filter hook prerouting priority -150
		iifname extra0 tcp dport 80 meta mark set 1 tproxy to :7777 accept; }; }`, "nft", "-f", "-")
	for _, family := range []string{"-4", "-6"} {
		pod.Run(t, "", "ip", family, "rule", "add", "fwmark", "1", "lookup", "133")
		pod.Run(t, "", "ip", family, "route", "add", "local", "default", "dev", "lo", "table",
			"133")
	}
	pod.Listen(t, netns.Listener{Who: "proxy", TCP: []uint16{7777}, Transparent: true})
	for _, to := range []string{"192.0.2.7:80", "[2001:db8:7::7]:80"} {
		wantReport(t, pod.VM.Dial(t, tcp(to)),
			netns.Report{Who: "proxy", Port: 7777, Local: at(to)})
	}
	wantReport(t, pod.VM.Dial(t, tcp("192.0.2.7:81")), peerTCP("192.0.2.7:81"))
}

func TestListenerOnOneAddress(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	pod.Listen(t, netns.Listener{Who: "local", TCP: []uint16{80},
		Addr: netip.MustParseAddr("127.0.0.1")})
	wantOutcome(t, pod.Dial(t, tcp("127.0.0.1:80")), netns.Answered)
	wantOutcome(t, pod.Dial(t, tcp("[::1]:80")), netns.Refused)
	wantOutcome(t, pod.Peer.Dial(t, tcp("10.244.0.2:80")), netns.Refused)
}

func TestPodWithoutIPv6(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{IPv6Disabled: true})
	pod.Listen(t, netns.Listener{Who: "app", TCP: []uint16{80}, UDP: []uint16{80}})
	if got := pod.Run(t, "", "ip", "-6", "address"); got != "" {
		t.Errorf("the pod has IPv6 addresses:\n%s", got)
	}
	wantOutcome(t, pod.Dial(t, tcp("[2001:db8:7::7]:80")), netns.Failed)
	wantReport(t, pod.Dial(t, tcp("192.0.2.7:80")), peerTCP("192.0.2.7:80"))
	wantOutcome(t, pod.Peer.Dial(t, tcp("10.244.0.2:80")), netns.Answered)
}

func TestLoopbackDown(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		pod := netns.NewPod(t, netns.Options{LoopbackDown: down})
		if got := !strings.Contains(pod.Run(t, "", "ip", "link", "show", "lo"),
			",UP"); got != down {
			t.Errorf("LoopbackDown: %t, but down is %t", down, got)
		}
	}
}

// A test that counts packets must not meet the kernel's own business with new addresses.
func TestNoAddressIsTentative(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{})
	for _, n := range []*netns.NS{pod.NS, pod.Peer, pod.VM} {
		if got := n.Run(t, "", "ip", "-6", "address", "show", "tentative"); got != "" {
			t.Errorf("duplicate address detection is still going on:\n%s", got)
		}
	}
}
