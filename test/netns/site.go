package netns

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loopback is the index of lo: the kernel makes it first in every namespace.
const loopback = 1

// Each link has its own link-local addresses, so two will do. A router asks for its neighbours'
// addresses from one.
var (
	innerLinkLocal = netip.MustParseAddr("fe80::2")
	outerLinkLocal = netip.MustParseAddr("fe80::1")
)

// A site is a namespace under construction. A step that fails ends the test.
type site struct {
	*netlink.Handle
	t      testing.TB
	ns     *NS
	noIPv6 bool
}

func newSite(t testing.TB, n *NS) *site {
	t.Helper()
	s := &site{t: t, ns: n}
	n.Do(t, func() {
		var err error
		s.Handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		s.must(err, "open netlink socket")
	})
	// Interfaces copy "default" when they are made. Packets of these tests come from unusual
	// places, and an address that the kernel makes by itself would spend a second on duplicate
	// address detection.
	n.Sysctl(t, "net/ipv4/conf/all/rp_filter", "0")
	n.Sysctl(t, "net/ipv4/conf/default/rp_filter", "0")
	n.Sysctl(t, "net/ipv6/conf/default/addr_gen_mode", "1")
	return s
}

func (s *site) must(err error, format string, args ...any) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("set up namespace: "+format+": %v", append(args, err)...)
	}
}

func (s *site) up(index int) {
	s.t.Helper()
	s.must(s.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}),
		"raise interface %d", index)
}

// connect lays a cable between two sites and returns the indexes of its ends when both can send.
func connect(a *site, aName string, b *site, bName string) (aIndex, bIndex int) {
	a.t.Helper()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: aName, TxQLen: -1},
		PeerName:      bName,
		PeerNamespace: netlink.NsFd(b.ns.fd),
	}
	a.must(a.LinkAdd(veth), "add interfaces %s and %s", aName, bName)
	other, err := b.LinkByName(bName)
	b.must(err, "find interface %s", bName)
	aIndex, bIndex = veth.Attrs().Index, other.Attrs().Index
	a.up(aIndex)
	b.up(bIndex)
	a.awaitCarrier(aIndex)
	b.awaitCarrier(bIndex)
	return aIndex, bIndex
}

// awaitCarrier returns when the interface can send. The end that was raised first drops packets
// until the kernel's linkwatch worker has noticed the second; since Linux 6.8 the question itself
// makes that happen (linkwatch_sync_dev in rtnl_getlink), before it is a matter of asking again.
func (s *site) awaitCarrier(index int) {
	s.t.Helper()
	s.await(fmt.Sprintf("carrier of interface %d", index), func() bool {
		link, err := s.LinkByIndex(index)
		s.must(err, "read interface %d", index)
		return link.Attrs().OperState == netlink.OperUp
	})
}

func (s *site) address(index int, addrs ...netip.Addr) {
	s.t.Helper()
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
	for _, a := range addrs {
		if s.noIPv6 && a.Is6() {
			continue
		}
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, subnet(a).Bits())),
			Flags: unix.IFA_F_NODAD}
		s.must(s.AddrAdd(link, addr), "add address %s", a)
	}
}

// awaitIPv6 returns when the addresses can receive. Even without duplicate address detection a
// kernel worker (addrconf_dad_work) joins the group where neighbours ask for the address, and adds
// its local route last. A question that comes too early is repeated after a second.
func (s *site) awaitIPv6(index int, addrs ...netip.Addr) {
	s.t.Helper()
	if s.noIPv6 {
		return
	}
	for _, a := range addrs {
		s.await("local route of "+a.String(), func() bool {
			routes, err := s.RouteGetWithOptions(a.AsSlice(),
				&netlink.RouteGetOptions{OifIndex: index})
			if err == nil && routes[0].Type == unix.RTN_LOCAL {
				return true
			}
			// The worker waits for the rtnl lock. So does this request, which keeps the loop from
			// spinning.
			_, err = s.LinkByIndex(index)
			s.must(err, "read interface %d", index)
			return false
		})
	}
}

// await asks until the kernel's workers are done, which mostly they are at the first question.
// There is no event to wait for instead: a new address is announced before its route exists.
func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for start := time.Now(); !done(); runtime.Gosched() {
		if time.Since(start) > time.Minute && !done() {
			s.t.Fatalf("set up namespace: no %s", what)
		}
	}
}

func (s *site) route(to netip.Prefix, via netip.Addr) {
	s.t.Helper()
	if s.noIPv6 && via.Is6() {
		return
	}
	s.must(s.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}), "add route to %s via %s",
		to, via)
}

// subnet is the network of an address here: /24 or /64.
func subnet(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
