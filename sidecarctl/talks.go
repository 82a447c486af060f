package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/target"
)

// exampleIPs stand in for a pod's addresses that nobody knows yet (RFC 5737, RFC 3849).
var exampleIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10"),
	netip.MustParseAddr("2001:db8::10")}

func (s subject) tracePod() trace.Pod {
	p := trace.Pod{Policy: s.has(), Addrs: s.pod.IPs}
	if len(p.Addrs) == 0 {
		p.Addrs = exampleIPs
	}
	return p
}

// A sender is who begins a connection, and what is known of him.
type sender struct {
	trace.Sender
	uid, gid bool // they are known; else they are assumed
	early    bool // an init container that runs before the proxy
}

// assumesGID reports whether the gid of an app is assumed. The proxy's matters only where it is
// known.
func (s sender) assumesGID() bool { return !s.gid && !s.Peer && s.Name != "proxy" }

// A namedTalk is a talk and what is said of it beside its rules.
type namedTalk struct {
	trace.Talk
	about string // who calls whom; "" if the command line says it
	from  sender
	notes []string // about the destination
}

// talks are those that the flags ask for.
func (s subject) talks(t talkFlags) ([]namedTalk, error) {
	if t.all {
		return s.usual()
	}
	from, err := s.sender(t.from)
	if err != nil {
		return nil, err
	}
	to, err := s.destination(t.to)
	if err != nil {
		return nil, err
	}
	one := namedTalk{from: from, Talk: trace.Talk{From: from.Sender, UDP: t.udp,
		Interface: t.netdevice}}
	if zone := to.Addr().Zone(); zone != "" {
		if t.netdevice != "" && t.netdevice != zone || !realInterface(zone) {
			return nil, usagef("--to %q: want the interface's name behind the %%, and no other "+
				"by --interface", t.to)
		}
		one.Interface = zone
	}
	addr := to.Addr().WithZone("")
	if addr.IsUnspecified() {
		loopback := loopbackOf(addr.Is4())
		one.notes = append(one.notes, fmt.Sprintf("%s is no destination: the kernel goes to the "+
			"pod's own %s instead", addr, loopback))
		addr = loopback
	}
	if !t.udp && (addr.IsMulticast() || addr == everybody) {
		return nil, usagef("--to %q: TCP goes to one receiver only: want --udp, too", t.to)
	}
	one.To = netip.AddrPortFrom(addr, to.Port())
	return []namedTalk{one}, nil
}

// everybody is the address of all of a network (RFC 919).
var everybody = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func loopbackOf(ipv4 bool) netip.Addr {
	if ipv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// realInterface reports whether a text can be the name of one interface.
func realInterface(name string) bool {
	return redirect.ValidInterface(name) && !strings.HasSuffix(name, "+")
}

// nobody is the number that is no id, but says that none is meant (-1).
const nobody = 1<<32 - 1

// sender is who --from names.
func (s subject) sender(from string) (sender, error) {
	if number, ok := strings.CutPrefix(from, "uid:"); ok {
		uid, err := strconv.ParseUint(number, 10, 32)
		if err != nil || uid == nobody {
			return sender{}, usagef("--from %q: want uid: and a number of at most %d", from,
				uint32(nobody-1))
		}
		return sender{uid: true, Sender: trace.Sender{Name: from, UID: uint32(uid),
			GID: uint32(uid)}}, nil
	}
	switch from {
	case "peer":
		return sender{Sender: trace.Sender{Name: from, Peer: true}}, nil
	case "proxy":
		return s.proxy(), nil
	}
	var names []string
	for _, c := range s.pod.Containers {
		app := from == "app" && !c.Init && c.Name != redirect.ProxyContainer
		if c.Name == from || app {
			return s.container(c), nil
		}
		names = append(names, c.Name)
	}
	if s.facts.Spec == nil && from == "app" {
		id := s.anybody()
		return sender{Sender: trace.Sender{Name: from, UID: id, GID: id}}, nil
	}
	return sender{}, usagef("--from %q: want app, proxy, peer, uid:N, or a container: %s", from,
		strings.Join(names, ", "))
}

// proxy is the pod's proxy. One that runs as root the rules know by its group, others by their uid.
func (s subject) proxy() sender {
	id := s.has().Proxy
	who := sender{uid: true, Sender: trace.Sender{Name: "proxy", UID: id.UIDs[0], GID: id.GIDs[0]}}
	if uid, known := s.uidOf(redirect.ProxyContainer); known && uid == 0 {
		who.UID, who.gid = 0, true
	}
	return who
}

// container is one of the pod's. An id that no manifest says is 0, which most images have.
func (s subject) container(c target.Container) sender {
	who := sender{Sender: trace.Sender{Name: c.Name},
		early: slices.Contains(redirect.BeforeProxy(s.facts), c.Name)}
	who.UID, who.uid = idOf(c.RunAsUser)
	who.GID, who.gid = idOf(c.RunAsGroup)
	return who
}

// idOf is an id that a manifest says, if it can be one.
func idOf(said *int64) (id uint32, known bool) {
	if said == nil || *said < 0 || *said >= nobody {
		return 0, false
	}
	return uint32(*said), true
}

// anybody stands for the app of a pod of which the containers are not known: whoever it is, the
// rules do not take him for the proxy.
func (s subject) anybody() uint32 {
	id := uint32(1000)
	for proxy := s.has().Proxy; slices.Contains(proxy.UIDs, id) ||
		slices.Contains(proxy.GIDs, id); {
		id++
	}
	return id
}

// destination is where --to leads, with the zone that it names.
func (s subject) destination(to string) (netip.AddrPort, error) {
	if port, ok := strings.CutPrefix(to, "self:"); ok {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return netip.AddrPort{}, usagef("--to %q: want self: and a port", to)
		}
		return netip.AddrPortFrom(s.tracePod().Addrs[0], uint16(number)), nil
	}
	addr, err := netip.ParseAddrPort(to)
	if err != nil || addr.Port() == 0 {
		return netip.AddrPort{}, usagef("--to %q: want ADDRESS:PORT as 10.0.0.1:80 or "+
			"[fd00::1]:80, or self:PORT; names are not looked up", to)
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), nil
}

// usual are the connections that people ask about, in each family that the pod has.
func (s subject) usual() ([]namedTalk, error) {
	app, err := s.sender("app")
	if err != nil {
		return nil, err
	}
	proxy := s.proxy()
	peer, _ := s.sender("peer")
	port := uint16(8080)
	for _, c := range s.pod.Containers {
		if len(c.Ports) > 0 && c.Name != redirect.ProxyContainer {
			port = c.Ports[0].Number
			break
		}
	}
	var all []namedTalk
	for _, own := range s.families() {
		elsewhere := map[bool]string{true: "198.51.100.7", false: "2001:db8:1::7"}[own.Is4()]
		loopback := loopbackOf(own.Is4()).String()
		add := func(about string, from sender, to string, port uint16, udp bool) {
			all = append(all, namedTalk{about: about, from: from, Talk: trace.Talk{
				From: from.Sender, To: netip.AddrPortFrom(netip.MustParseAddr(to), port),
				UDP: udp}})
		}
		add("app calls out", app, elsewhere, 443, false)
		add("app asks for a name", app, s.nameserver(own.Is4(), elsewhere), 53, true)
		add("app calls itself by its address", app, own.String(), port, false)
		add("app calls itself on loopback", app, loopback, port, false)
		add("proxy calls out", proxy, elsewhere, 443, false)
		add("peer calls the app", peer, own.String(), port, false)
		add("kubelet probes the proxy", peer, own.String(), 15021, false)
		add("peer calls a port of the proxy", peer, own.String(), s.has().Ports.Tunnel,
			false)
	}
	return all, nil
}

// families are the pod's addresses, one of each family.
func (s subject) families() []netip.Addr {
	addrs := slices.Clone(s.tracePod().Addrs)
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int {
		return cmp.Compare(a.BitLen(), b.BitLen())
	})
	return slices.CompactFunc(addrs, func(a, b netip.Addr) bool { return a.Is4() == b.Is4() })
}

func (s subject) nameserver(ipv4 bool, usual string) string {
	for _, a := range s.facts.Nameservers {
		if a.Is4() == ipv4 {
			return a.String()
		}
	}
	return usual
}
