package watch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/nftables"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

var (
	app   = netns.Identity{UID: 1000, GID: 1000}
	proxy = netns.Identity{UID: 1337, GID: 1337}
)

// policyOf is the policy of a pod with an excluded port in each direction, and captured names.
func policyOf(t *testing.T, mode redirect.Mode) redirect.Policy {
	t.Helper()
	pod := redirect.Pod{Namespace: "shop", Name: "web",
		Annotations: map[string]string{
			"sidecar.istio.io/status":                       "{}",
			"sidecar.istio.io/interceptionMode":             string(mode),
			"traffic.sidecar.istio.io/excludeOutboundPorts": "5432",
			"traffic.sidecar.istio.io/excludeInboundPorts":  "9090",
		},
		Nameservers: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Spec: &redirect.Spec{Containers: []redirect.Container{{Name: "app"},
			{Name: redirect.ProxyContainer, Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}}}},
	}
	d, err := redirect.Decide(pod, redirect.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return d.Policy
}

// meshed is a pod with rules, a proxy and an app.
func meshed(t *testing.T, mode redirect.Mode) (*netns.Pod, redirect.Policy) {
	t.Helper()
	pod, policy := netns.NewPod(t, netns.Options{}), policyOf(t, mode)
	var err error
	pod.Do(t, func() { _, err = nftables.Apply(t.Context(), redirect.Compile(policy)) })
	if err != nil {
		t.Fatal(err)
	}
	pod.Listen(t, netns.Listener{Who: "proxy", As: proxy, TCP: []uint16{15001, 15006},
		UDP: []uint16{15053}, Transparent: mode == redirect.ModeTProxy})
	pod.Listen(t, netns.Listener{Who: "app", As: app, TCP: []uint16{8080, 9090}})
	return pod, policy
}

// watching collects what a watcher reports.
type watching struct {
	t      *testing.T
	events chan Event
	result chan error
	stop   context.CancelFunc
}

func start(t *testing.T, ns *netns.NS, o Options) *watching {
	t.Helper()
	var w *Watcher
	var err error
	ns.Do(t, func() { w, err = Open(o) })
	if err != nil {
		t.Fatal(err)
	}
	return runs(t, w)
}

func runs(t *testing.T, w *Watcher) *watching {
	ctx, stop := context.WithCancel(t.Context())
	s := &watching{t, make(chan Event, 100_000), make(chan error, 1), stop}
	go func() {
		err := w.Run(ctx, func(e Event) error { s.events <- e; return nil })
		close(s.events)
		s.result <- err
	}()
	t.Cleanup(func() {
		stop()
		for range s.events { // until it is closed
		}
		w.Close()
	})
	return s
}

// await returns the next event of a kind.
func (s *watching) await(kinds ...Kind) Event {
	s.t.Helper()
	var seen []string
	ctx, stop := context.WithTimeout(s.t.Context(), time.Minute)
	defer stop()
	for {
		select {
		case e, ok := <-s.events:
			for _, kind := range kinds {
				if ok && e.Kind == kind {
					return e
				}
			}
			if !ok {
				s.t.Fatalf("it ended without an event of kind %v; there were\n%s", kinds,
					strings.Join(seen, ""))
			}
			seen = append(seen, e.text())
		case <-ctx.Done():
			s.t.Fatalf("no event of kind %v; there were\n%s", kinds, strings.Join(seen, ""))
		}
	}
}

// end stops it and returns its last event.
func (s *watching) end() Event {
	s.t.Helper()
	s.stop()
	e := s.await(Done)
	if err := <-s.result; err != nil {
		s.t.Errorf("stopped: %v", err)
	}
	return e
}

// of says what matters of a connection, in a word or two.
func of(c *Connection) string {
	text := fmt.Sprintf("%s %s %s", c.From, c.Protocol, c.To)
	if way := c.way(); way != "" {
		text += " " + way
	}
	if c.Zone != 0 {
		text += fmt.Sprintf(" zone %d", c.Zone)
	}
	if c.Outcome != "" {
		text += " " + c.Outcome
	}
	if c.Receiver != nil {
		text += " by " + c.Receiver.String()
	}
	return text
}

func TestConnections(t *testing.T) {
	t.Parallel()
	type row struct {
		name  string
		call  netns.Call
		peer  bool // it is called from outside
		began string
		ended string
	}
	to := netip.MustParseAddrPort
	for mode, rows := range map[redirect.Mode][]row{
		redirect.ModeRedirect: {
			{"captured", netns.Call{As: app, Network: "tcp", To: to("192.0.2.7:80")}, false,
				"app (uid 1000) TCP 192.0.2.7:80 ──▶ 15001 (outbound)",
				"app (uid 1000) TCP 192.0.2.7:80 ──▶ 15001 (outbound) closed by proxy (uid 1337)"},
			{"captured, IPv6", netns.Call{As: app, Network: "tcp", To: to("[2001:db8::7]:80")}, false,
				"app (uid 1000) TCP [2001:db8::7]:80 ──▶ 15001 (outbound)",
				"app (uid 1000) TCP [2001:db8::7]:80 ──▶ 15001 (outbound) closed by proxy (uid 1337)"},
			{"excluded", netns.Call{As: app, Network: "tcp", To: to("192.0.2.7:5432")}, false,
				"app (uid 1000) TCP 192.0.2.7:5432 not redirected",
				"app (uid 1000) TCP 192.0.2.7:5432 not redirected closed"},
			{"the proxy's", netns.Call{As: proxy, Network: "tcp", To: to("192.0.2.7:80")}, false,
				"proxy (uid 1337) TCP 192.0.2.7:80", "proxy (uid 1337) TCP 192.0.2.7:80 closed"},
			{"inbound", netns.Call{Network: "tcp", To: netip.AddrPortFrom(netns.PodIPv4, 8080)}, true,
				"peer TCP 10.244.0.2:8080 ──▶ 15006 (inbound)",
				"peer TCP 10.244.0.2:8080 ──▶ 15006 (inbound) closed by proxy (uid 1337)"},
			{"inbound, IPv6", netns.Call{Network: "tcp", To: netip.AddrPortFrom(netns.PodIPv6, 8080)}, true,
				"peer TCP [fd00:244::2]:8080 ──▶ 15006 (inbound)",
				"peer TCP [fd00:244::2]:8080 ──▶ 15006 (inbound) closed by proxy (uid 1337)"},
			{"inbound, excluded", netns.Call{Network: "tcp", To: netip.AddrPortFrom(netns.PodIPv4, 9090)}, true,
				"peer TCP 10.244.0.2:9090 not redirected",
				"peer TCP 10.244.0.2:9090 not redirected closed by app (uid 1000)"},
			{"the proxy calls the app", netns.Call{As: proxy, Network: "tcp", To: to("127.0.0.1:8080")}, false,
				"proxy (uid 1337) TCP 127.0.0.1:8080",
				"proxy (uid 1337) TCP 127.0.0.1:8080 closed by app (uid 1000)"},
			{"within the pod", netns.Call{As: app, Network: "tcp", To: to("127.0.0.1:8080")}, false,
				"app (uid 1000) TCP 127.0.0.1:8080 not redirected",
				"app (uid 1000) TCP 127.0.0.1:8080 not redirected closed by app (uid 1000)"},
			{"the pod calls itself", netns.Call{As: proxy, Network: "tcp",
				To: netip.AddrPortFrom(netns.PodIPv4, 8080)}, false,
				"proxy (uid 1337) TCP 10.244.0.2:8080 ──▶ 15006 (inbound)",
				"proxy (uid 1337) TCP 10.244.0.2:8080 ──▶ 15006 (inbound) closed by proxy (uid 1337)"},
			{"refused", netns.Call{As: proxy, Network: "tcp", To: to("127.0.0.1:1")}, false,
				"pod TCP 127.0.0.1:1 not redirected", "pod TCP 127.0.0.1:1 not redirected refused"},
			{"name", netns.Call{As: app, Network: "udp", To: to("10.96.0.10:53")}, false,
				"app (uid 1000) UDP 10.96.0.10:53 ──▶ 15053 (DNS) zone 2", ""},
			{"name, by the proxy", netns.Call{As: proxy, Network: "udp", To: to("10.96.0.10:53")}, false,
				"proxy (uid 1337) UDP 10.96.0.10:53 zone 1", ""},
		},
		redirect.ModeTProxy: {
			{"inbound", netns.Call{Network: "tcp", To: netip.AddrPortFrom(netns.PodIPv4, 8080)}, true,
				"peer TCP 10.244.0.2:8080", "peer TCP 10.244.0.2:8080 closed by proxy (uid 1337)"},
			{"inbound, excluded", netns.Call{Network: "tcp", To: netip.AddrPortFrom(netns.PodIPv6, 9090)}, true,
				"peer TCP [fd00:244::2]:9090",
				"peer TCP [fd00:244::2]:9090 not redirected closed by app (uid 1000)"},
			{"the proxy, which runs as root, as its client", netns.Call{Network: "tcp", Mark: 1337,
				From: netns.PeerIPv4, To: netip.AddrPortFrom(netns.PodIPv4, 8080)}, false,
				"proxy (uid 0) TCP 10.244.0.2:8080",
				"proxy (uid 0) TCP 10.244.0.2:8080 closed by app (uid 1000)"},
			{"root, captured", netns.Call{Network: "tcp", To: to("192.0.2.7:80")}, false,
				"app (uid 0) TCP 192.0.2.7:80 ──▶ 15001 (outbound)",
				"app (uid 0) TCP 192.0.2.7:80 ──▶ 15001 (outbound) closed by proxy (uid 1337)"},
			{"root, not captured", netns.Call{Network: "tcp", To: to("192.0.2.7:5432")}, false,
				"pod (uid 0) TCP 192.0.2.7:5432 not redirected",
				"pod (uid 0) TCP 192.0.2.7:5432 not redirected closed"},
			{"captured", netns.Call{As: app, Network: "tcp", To: to("192.0.2.7:80")}, false,
				"app (uid 1000) TCP 192.0.2.7:80 ──▶ 15001 (outbound)",
				"app (uid 1000) TCP 192.0.2.7:80 ──▶ 15001 (outbound) closed by proxy (uid 1337)"},
		},
	} {
		pod, policy := meshed(t, mode)
		w := start(t, pod.NS, Options{Policy: policy})
		marks := 0
		for _, row := range rows {
			from := pod.NS
			if row.peer {
				from = pod.Peer
			}
			end := hold(t, from, row.call)
			began := w.await(Began).Connection
			if got := of(began); !strings.HasSuffix(got, row.began) {
				t.Errorf("%s: %s\ngot  %s\nwant %s", mode, row.name, got, row.began)
			}
			if row.ended == "" {
				continue
			}
			if !strings.HasSuffix(row.ended, Refused) {
				// Events come in order: with this one, those of the call's opening were read.
				pod.Dial(t, netns.Call{Network: "udp", To: to("127.0.0.1:9")})
				w.await(Began)
				marks++
			}
			end()
			ended := w.await(Ended).Connection
			if got := of(ended); !strings.HasSuffix(got, row.ended) || ended.ID != began.ID ||
				ended.Milliseconds < 1 {
				t.Errorf("%s: %s, end\ngot  %s\nwant %s", mode, row.name, got, row.ended)
			}
		}
		calls := uint64(len(rows) + marks)
		if last := w.end(); last.Summary.Lost != 0 || last.Summary.Began != calls {
			t.Errorf("%s: %d connections: %+v", mode, calls, last.Summary)
		}
	}
}

// An exchange of UDP ends when connection tracking forgets it, which here is told to it.
func TestTheEndsOfUDP(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	pod.Sysctl(t, "net/netfilter/nf_conntrack_acct", "1")
	w := start(t, pod.NS, Options{Policy: policy})
	for _, row := range []struct {
		port uint16
		want string
	}{{53, Idle}, {54, NoAnswer}} {
		// Nobody answers to the other: what is refused by ICMP is not answered.
		to := netip.AddrPortFrom(netns.PeerIPv4, row.port)
		pod.Dial(t, netns.Call{As: app, Network: "udp", To: to})
		w.await(Began)
		pod.Run(t, "", "conntrack", "-D", "-p", "udp", "--dport", fmt.Sprint(row.port))
		c := w.await(Ended).Connection
		if c.Outcome != row.want || c.Milliseconds != 0 || c.Sent == nil || c.Sent.Packets != 1 {
			t.Errorf("port %d: %+v, sent %+v", row.port, c, c.Sent)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	w := start(t, pod.NS, Options{Policy: policy})
	// Nobody has this neighbour's address, so that nobody refuses.
	fd := socket(t, pod.NS, proxy, unix.AF_INET, unix.SOCK_STREAM)
	defer unix.Close(fd)
	_ = unix.SetNonblock(fd, true)
	err := unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{10, 245, 0, 77}})
	if !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	w.await(Began)
	pod.Run(t, "", "conntrack", "-D", "-p", "tcp", "--dport", "80")
	if c := w.await(Ended).Connection; c.Outcome != NoAnswer || c.From.Who != Proxy {
		t.Errorf("%+v", c)
	}
}

// socket opens one that belongs to a user.
func socket(t *testing.T, ns *netns.NS, id netns.Identity, family, kind int) (fd int) {
	t.Helper()
	var err error
	ns.Do(t, func() { // on a locked thread
		_, _ = unix.SetfsgidRetGid(int(id.GID))
		_, _ = unix.SetfsuidRetUid(int(id.UID))
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		_, _ = unix.SetfsuidRetUid(0)
		_, _ = unix.SetfsgidRetGid(0)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestReset(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	w := start(t, pod.NS, Options{Policy: policy})
	fd := socket(t, pod.NS, app, unix.AF_INET, unix.SOCK_STREAM)
	// What is closed with a linger of nothing is reset.
	err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 8080, Addr: [4]byte{127, 0, 0, 1}})
	}
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	if c := w.await(Ended).Connection; c.Outcome != Reset {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	pod.Sysctl(t, "net/netfilter/nf_conntrack_acct", "1")
	w := start(t, pod.NS, Options{Policy: policy})
	for _, to := range []netip.Addr{netns.PodIPv4, netns.PodIPv6} {
		pod.Peer.Dial(t, netns.Call{Network: "tcp", To: netip.AddrPortFrom(to, 8080)})
		c := w.await(Ended).Connection
		// A handshake is three packets, the ends of both sides are as many at least.
		if c.Sent == nil || c.Received == nil || c.Sent.Packets+c.Received.Packets < 6 ||
			c.Sent.Bytes == 0 || c.Received.Bytes < c.Sent.Bytes {
			t.Errorf("%s: sent %+v, received %+v", to, c.Sent, c.Received)
		}
	}
}

// uninterrupted repeats a call of the kernel that a signal of Go's runtime has interrupted, which
// is not begun anew by itself where the socket has a timeout.
func uninterrupted(call func() error) error {
	for {
		switch err := call(); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EISCONN): // by the interrupted one
			return nil
		default:
			return err
		}
	}
}

// hold makes a call and returns when all of the answer is there. The connection is open until end
// is called.
func hold(t *testing.T, ns *netns.NS, c netns.Call) (end func()) {
	t.Helper()
	var to unix.Sockaddr
	family := unix.AF_INET
	if c.To.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(c.To.Port()), Addr: c.To.Addr().As4()}
	} else {
		to = &unix.SockaddrInet6{Port: int(c.To.Port()), Addr: c.To.Addr().As16()}
		family = unix.AF_INET6
	}
	kind := unix.SOCK_STREAM
	if c.Network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd := socket(t, ns, c.As, family, kind)
	t.Cleanup(func() { unix.Close(fd) })
	var err error
	if c.Mark != 0 {
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(c.Mark)),
			unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1))
	}
	if c.From.IsValid() {
		err = errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Addr: c.From.As4()}))
	}
	err = errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: 60}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 60}),
		uninterrupted(func() error { return unix.Connect(fd, to) }))
	buf := make([]byte, 1024)
	if kind == unix.SOCK_DGRAM && err == nil {
		if _, err = unix.Write(fd, buf[:1]); err == nil {
			err = uninterrupted(func() error { _, err := unix.Read(fd, buf); return err })
		}
	}
	for n := 1; kind == unix.SOCK_STREAM && n > 0 && err == nil; {
		err = uninterrupted(func() (err error) { n, err = unix.Read(fd, buf); return err })
	}
	if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("call %s: %v", c.To, err)
	}
	return func() { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }
}

func TestExistingConnections(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"1", "2"} {
		pod, policy := meshed(t, redirect.ModeRedirect)
		pod.Sysctl(t, "net/netfilter/nf_conntrack_events", mode)
		end := hold(t, pod.NS, netns.Call{To: netip.MustParseAddrPort("127.0.0.1:8080")})
		pod.Peer.Dial(t, netns.Call{Network: "tcp", To: netip.AddrPortFrom(netns.PodIPv4, 9090)})
		w := start(t, pod.NS, Options{Policy: policy, Existing: true})
		if mode == "2" { // then the kernel keeps quiet about what began unwatched
			if note := w.await(Note); !strings.Contains(note.Text, "nf_conntrack_events is 2") {
				t.Errorf("note %q", note.Text)
			}
		}
		if c := w.await(Existing).Connection; c.To.Port() != 8080 || c.From.Who != App ||
			*c.From.UID != 0 {
			t.Errorf("mode %s: %+v", mode, c)
		}
		end()
		if mode == "1" {
			c := w.await(Ended).Connection
			if c.Outcome != Closed || c.Milliseconds != 0 || c.Receiver == nil {
				t.Errorf("%+v", c)
			}
		}
		if last := w.end(); last.Summary.Began != 0 {
			t.Errorf("mode %s: %+v", mode, last.Summary)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	call := func(network, to string) {
		pod.Dial(t, netns.Call{As: app, Network: network, To: netip.MustParseAddrPort(to)})
	}
	for _, row := range []struct {
		name string
		o    Options
		want []string
	}{
		{"a port", Options{Port: 81}, []string{"192.0.2.7:81"}},
		{"a port of the proxy", Options{Port: 15001}, []string{"192.0.2.7:80", "192.0.2.7:81"}},
		{"UDP", Options{Protocol: redirect.UDP}, []string{"10.96.0.10:53"}},
		{"a number", Options{Count: 1}, []string{"192.0.2.7:80"}},
	} {
		row.o.Policy = policy
		w := start(t, pod.NS, row.o)
		call("tcp", "192.0.2.7:80")
		call("tcp", "192.0.2.7:81")
		call("udp", "10.96.0.10:53")
		var got []string
		for range row.want {
			got = append(got, w.await(Began).Connection.To.String())
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
		if row.o.Count == 0 {
			w.stop()
		}
		if last := w.await(Done); last.Summary.Began != uint64(len(row.want)) {
			t.Errorf("%s: %+v", row.name, last.Summary)
		}
	}
}

// What the buffer had no room for is counted: with what was read it is what another watcher read,
// who had room.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	// However long the calls take: each that is forgotten has an event, which the small buffer may
	// have room for again, and the calls have said so already.
	pod.Sysctl(t, "net/netfilter/nf_conntrack_tcp_timeout_close", "600")
	var small, large *Watcher
	var err error
	pod.Do(t, func() {
		if small, err = open(Options{Policy: policy}, 4096); err == nil {
			large, err = Open(Options{Policy: policy})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const calls = 2000
	for range calls { // nobody reads meanwhile
		pod.Dial(t, netns.Call{Network: "tcp", To: netip.MustParseAddrPort("127.0.0.1:1")})
	}
	s, l := runs(t, small), runs(t, large)
	for range calls {
		l.await(Ended)
	}
	all := l.end().Summary
	if all.Lost != 0 || all.Began != calls || all.Ended != calls {
		t.Fatalf("with room: %+v", all)
	}
	lost := s.await(Lost).Lost
	// The kernel takes events again as soon as the buffer is empty.
	pod.Dial(t, netns.Call{As: app, Network: "tcp", To: netip.MustParseAddrPort("192.0.2.7:80")})
	for s.await(Began).Connection.To.Port() != 80 {
	}
	sum := s.end().Summary
	if sum.Lost != lost || lost == 0 || sum.Began-1+sum.Ended+lost < 2*calls ||
		sum.Began-1+sum.Ended+lost > 2*calls+1 {
		t.Errorf("lost %d: %+v; want %d events in all", lost, sum, 2*calls)
	}
}

func TestWhereNothingIsTracked(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	w := start(t, ns, Options{})
	if note := w.await(Note); !strings.Contains(note.Text, "no connection is tracked") {
		t.Errorf("note %q", note.Text)
	}
	w.end()
}

func TestEventsThatAreOff(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.Sysctl(t, "net/netfilter/nf_conntrack_events", "0")
	ns.Do(t, func() {
		if _, err := Open(Options{}); err == nil || !strings.Contains(err.Error(), "nf_conntrack_events to 1") {
			t.Errorf("error %v", err)
		}
	})
}

// The uids of a pod with a user namespace of its own are other numbers than those of its policy.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	pod := netns.NewPod(t, netns.Options{UserNamespace: true})
	policy := policyOf(t, redirect.ModeRedirect)
	pod.Do(t, func() {
		if _, err := nftables.Apply(t.Context(), redirect.Compile(policy)); err != nil {
			t.Error(err)
		}
	})
	w := start(t, pod.NS, Options{Policy: policy})
	var notes []string
	pod.Listen(t, netns.Listener{Who: "proxy", As: proxy, TCP: []uint16{15001}})
	pod.Dial(t, netns.Call{As: app, Network: "tcp", To: netip.MustParseAddrPort("192.0.2.7:80")})
	for {
		e := w.await(Note, Began)
		if e.Kind == Note {
			notes = append(notes, e.Text)
			continue
		}
		if e.Connection.From != (Party{Who: App}) {
			t.Errorf("captured: %+v", e.Connection.From)
		}
		break
	}
	pod.Dial(t, netns.Call{As: proxy, Network: "tcp", To: netip.MustParseAddrPort("192.0.2.7:81")})
	if c := w.await(Began).Connection; c.From != (Party{Who: Pod}) {
		t.Errorf("not captured: %+v", c.From)
	}
	if !strings.Contains(strings.Join(notes, "\n"), "user namespace") {
		t.Errorf("notes %q", notes)
	}
}

func TestAReaderThatStops(t *testing.T) {
	t.Parallel()
	pod, policy := meshed(t, redirect.ModeRedirect)
	var w *Watcher
	var err error
	pod.Do(t, func() { w, err = Open(Options{Policy: policy}) })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	pod.Dial(t, netns.Call{As: app, Network: "tcp", To: netip.MustParseAddrPort("192.0.2.7:80")})
	calls := 0
	err = w.Run(t.Context(), func(Event) error { calls++; return unix.EPIPE })
	if !errors.Is(err, unix.EPIPE) || calls != 1 {
		t.Errorf("error %v after %d events", err, calls)
	}
}
