package sockets_test

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/sockets"
	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

func open(t *testing.T, ns *netns.NS) *sockets.Reader {
	t.Helper()
	var r *sockets.Reader
	var err error
	ns.Do(t, func() { r, err = sockets.Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func sorted(all []sockets.Socket) []sockets.Socket {
	slices.SortFunc(all, func(a, b sockets.Socket) int {
		return cmp.Or(a.Local.Compare(b.Local), cmp.Compare(a.UID, b.UID))
	})
	return all
}

func receivers(t *testing.T, r *sockets.Reader, p redirect.Protocol) []sockets.Socket {
	t.Helper()
	all, err := r.Receivers(p)
	if err != nil {
		t.Fatal(err)
	}
	return sorted(all)
}

func want(p redirect.Protocol, local string, uid uint32, transparent bool) sockets.Socket {
	at := netip.MustParseAddrPort(local)
	return sockets.Socket{Protocol: p.String(), Local: at, UID: uid, Transparent: &transparent,
		V6Only: at.Addr().Is6()}
}

var (
	proxy    = netns.Identity{UID: 1337, GID: 1337}
	app      = netns.Identity{UID: 1000, GID: 1000}
	anyInode = cmpopts.IgnoreFields(sockets.Socket{}, "Inode")
	addrs    = gocmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
)

func TestReceivers(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	ns.Listen(t, netns.Listener{Who: "proxy", As: proxy, TCP: []uint16{15001}, UDP: []uint16{15053},
		Addr: netip.MustParseAddr("127.0.0.1")})
	ns.Listen(t, netns.Listener{Who: "proxy", As: proxy, TCP: []uint16{15006}, UDP: []uint16{15007},
		Transparent: true})
	ns.Listen(t, netns.Listener{Who: "app", As: app, TCP: []uint16{8080}})
	r := open(t, ns)
	for p, wanted := range map[redirect.Protocol][]sockets.Socket{
		redirect.TCP: {
			want(redirect.TCP, "0.0.0.0:8080", 1000, false),
			want(redirect.TCP, "0.0.0.0:15006", 1337, true),
			want(redirect.TCP, "127.0.0.1:15001", 1337, false),
			want(redirect.TCP, "[::]:8080", 1000, false),
			want(redirect.TCP, "[::]:15006", 1337, true),
		},
		redirect.UDP: {
			want(redirect.UDP, "0.0.0.0:15007", 1337, true),
			want(redirect.UDP, "127.0.0.1:15053", 1337, false),
			want(redirect.UDP, "[::]:15007", 1337, true),
		},
	} {
		got := receivers(t, r, p)
		if diff := gocmp.Diff(wanted, got, anyInode, addrs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p, diff)
		}
		// ss shares no code with us.
		listing := ns.Run(t, "", "ss", "-Hlne", "--"+strings.ToLower(p.String()))
		for _, s := range got {
			if !strings.Contains(listing, "ino:"+strconv.Itoa(int(s.Inode))+" ") {
				t.Errorf("%s: no inode %d in\n%s", p, s.Inode, listing)
			}
		}
		if lines := strings.Count(listing, "\n"); lines != len(got) {
			t.Errorf("%s: ss lists %d, we %d:\n%s", p, lines, len(got), listing)
		}
	}
}

// listen opens a listening socket, which stays open as long as the test.
func listen(t *testing.T, ns *netns.NS, at unix.Sockaddr, v6only, reuse int) {
	t.Helper()
	family := unix.AF_INET6
	if _, ok := at.(*unix.SockaddrInet4); ok {
		family = unix.AF_INET
	}
	ns.Do(t, func() {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, reuse)
		if family == unix.AF_INET6 {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, v6only))
		}
		if err := errors.Join(err, unix.Bind(fd, at), unix.Listen(fd, 1)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBothFamiliesAndSharedPorts(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	listen(t, ns, &unix.SockaddrInet6{Port: 15006}, 0, 0)
	for range 3 {
		listen(t, ns, &unix.SockaddrInet6{Port: 15001}, 1, 1)
	}
	got := receivers(t, open(t, ns), redirect.TCP)
	if len(got) != 4 || got[3].V6Only || !got[0].V6Only {
		t.Fatalf("%+v", got)
	}
	inodes := map[uint32]bool{}
	for _, s := range got {
		inodes[s.Inode] = true
	}
	if len(inodes) != 4 {
		t.Errorf("%d inodes of 4 sockets: %+v", len(inodes), got)
	}
}

func TestManySockets(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	const first, many = 10000, 10000
	for i := range many {
		listen(t, ns, &unix.SockaddrInet4{Port: first + i, Addr: [4]byte{127, 0, 0, 1}}, 0, 0)
	}
	ports := map[uint16]bool{}
	for _, s := range receivers(t, open(t, ns), redirect.TCP) {
		ports[s.Local.Port()] = true
	}
	if len(ports) != many {
		t.Errorf("%d of %d sockets", len(ports), many)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	r := open(t, netns.New(t))
	for _, p := range []redirect.Protocol{redirect.TCP, redirect.UDP} {
		if got := receivers(t, r, p); len(got) > 0 {
			t.Errorf("%s: %+v", p, got)
		}
	}
}

// A protocol that no kernel has a module for is one whose module is missing.
func TestAMissingModuleIsNotNobody(t *testing.T) {
	t.Parallel()
	r := open(t, netns.New(t))
	_, err := r.Receivers(redirect.Protocol(unix.IPPROTO_EGP))
	module, ok := errors.AsType[*sockets.ModuleError](err)
	if !ok || module.Module == "" || !strings.Contains(err.Error(), module.Module) {
		t.Errorf("error %v", err)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	ns := netns.New(t)
	ns.RaiseLoopback(t)
	listen(t, ns, &unix.SockaddrInet6{Port: 8080}, 0, 0)
	ns.Listen(t, netns.Listener{Who: "resolver", As: proxy, UDP: []uint16{8080}})
	r := open(t, ns)
	for _, to := range []string{"127.0.0.1:8080", "[::1]:8080"} {
		remote := netip.MustParseAddrPort(to)
		for p, kind := range map[redirect.Protocol]int{redirect.TCP: unix.SOCK_STREAM,
			redirect.UDP: unix.SOCK_DGRAM} {
			local, inode := connect(t, ns, remote, kind)
			s, ok, err := r.Find(p, local, remote)
			if err != nil || !ok || s.Local != local || s.Inode != inode {
				t.Errorf("%s %s: %+v, %v, %v; want inode %d", p, to, s, ok, err, inode)
			}
			s, ok, err = r.Find(p, remote, local)
			if p == redirect.UDP {
				if err != nil || !ok || s.UID != proxy.UID {
					t.Errorf("UDP %s, who answers: %+v, %v, %v", to, s, ok, err)
				}
			} else if err != nil || ok { // nobody accepted it yet, so it is nobody's
				t.Errorf("TCP %s, not accepted: %+v, %v, %v", to, s, ok, err)
			}
		}
		listener := netip.AddrPortFrom(remote.Addr(), 1)
		if s, ok, err := r.Find(redirect.TCP, remote, listener); err != nil || ok {
			t.Errorf("%s, the listener has no such connection: %+v, %v, %v", to, s, ok, err)
		}
	}
	nowhere := netip.MustParseAddrPort("192.0.2.1:9")
	for _, p := range []redirect.Protocol{redirect.TCP, redirect.UDP} {
		if s, ok, err := r.Find(p, nowhere, nowhere); err != nil || ok {
			t.Errorf("%s, nobody's: %+v, %v, %v", p, s, ok, err)
		}
	}
}

// connect opens a connection, which stays open as long as the test, and returns where it begins and
// its inode.
func connect(t *testing.T, ns *netns.NS, to netip.AddrPort, kind int) (netip.AddrPort, uint32) {
	t.Helper()
	var at unix.Sockaddr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: [4]byte{127, 0, 0, 1}}
	family := unix.AF_INET
	if to.Addr().Is6() {
		at = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
		family = unix.AF_INET6
	}
	var fd int
	var st unix.Stat_t
	var err error
	ns.Do(t, func() { fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Connect(fd, at), unix.Fstat(fd, &st)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := name.(*unix.SockaddrInet6); ok {
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr), uint16(name.Port)), uint32(st.Ino)
	}
	four := name.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), uint16(four.Port)), uint32(st.Ino)
}
