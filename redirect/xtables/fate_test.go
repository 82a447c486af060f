package xtables

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// row is a packet in IPv4, and what becomes of it. In IPv6 it has the addresses that inIPv6 writes.
type row struct {
	name   string
	change func(*packet.Packet) // of the packet in check
	want   packet.Fate          // without Met; Outcome 0: Passes
	met    string               // TABLE CHAIN NUMBER, ... if it matters
}

var listings = map[string]struct {
	text string
	rows []row
}{
	"redirect": {redirecting, []row{
		{"the app calls", func(p *packet.Packet) {}, packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true},
			"nat OUTPUT 1, nat ISTIO_OUTPUT 10, nat ISTIO_REDIRECT 1"},
		{"the app calls an excluded network", to("10.96.3.4:80"), packet.Fate{}, "nat OUTPUT 1, nat ISTIO_OUTPUT 9"},
		{"a datagram", udp, packet.Fate{}, "nat OUTPUT 1, nat ISTIO_OUTPUT 10"},
		{"without a socket", ownerless, packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true}, ""},
		{"a later packet", state(redirect.Established), packet.Fate{}, "-"},
		{"a related one", state(redirect.Related), packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true}, ""},
		{"an invalid one", state(redirect.Invalid), packet.Fate{}, "-"},
		{"the proxy calls", owner(1337, 1337), packet.Fate{}, "nat OUTPUT 1, nat ISTIO_OUTPUT 4"},
		{"the proxy by its group", owner(1, 1337), packet.Fate{}, "nat OUTPUT 1, nat ISTIO_OUTPUT 7"},
		{"the proxy calls the pod", all(owner(1337, 1337), lo), packet.Fate{Outcome: packet.Redirected, Port: 15006, Local: true},
			"nat OUTPUT 1, nat ISTIO_OUTPUT 2, nat ISTIO_IN_REDIRECT 1"},
		{"the proxy calls the app", all(owner(1337, 1337), lo, to("127.0.0.1:80")), packet.Fate{Local: true}, "nat OUTPUT 1, nat ISTIO_OUTPUT 4"},
		{"the app calls itself", lo, packet.Fate{Local: true}, "nat OUTPUT 1, nat ISTIO_OUTPUT 3"},
		{"nobody on lo meets a negated owner", all(lo, ownerless), packet.Fate{Local: true}, "nat OUTPUT 1, nat ISTIO_OUTPUT 3"},
		{"a client", enters, packet.Fate{Outcome: packet.Redirected, Port: 15006}, "nat PREROUTING 1, nat ISTIO_INBOUND 5, nat ISTIO_IN_REDIRECT 1"},
		{"a probe", all(enters, to("10.244.0.2:15021")), packet.Fate{}, "nat PREROUTING 1, nat ISTIO_INBOUND 3"},
		{"marks stay", all(enters, marked(7, 8)), packet.Fate{Outcome: packet.Redirected, Port: 15006, Mark: packet.Mark{Value: 7}, ConnMark: packet.Mark{Value: 8}}, ""},
	}},
	"transparent": {transparent + redirecting, []row{
		{"a client", enters, packet.Fate{Outcome: packet.Handed, Port: 15006, Mark: packet.Mark{Value: 1337}},
			"mangle PREROUTING 1, mangle ISTIO_INBOUND 6, mangle ISTIO_TPROXY 1"},
		{"a client's later packet", all(enters, state(redirect.Established)), packet.Fate{Mark: packet.Mark{Value: 1337}},
			"mangle PREROUTING 1, mangle ISTIO_INBOUND 5, mangle ISTIO_DIVERT 1, mangle ISTIO_DIVERT 2"},
		{"a marked packet is saved, and nat is asked", all(enters, marked(1337, 0)), packet.Fate{Outcome: packet.Redirected, Port: 15006, Mark: packet.Mark{Value: 1337}, ConnMark: packet.Mark{Value: 1337}}, ""},
		{"an invalid packet has no connection to save to", all(enters, marked(1337, 0), state(redirect.Invalid)), packet.Fate{Mark: packet.Mark{Value: 1337}}, ""},
		{"the proxy answers its client", all(owner(1337, 1337), marked(0, 1337), state(redirect.Established)),
			packet.Fate{Local: true, Mark: packet.Mark{Value: 1337}, ConnMark: packet.Mark{Value: 1337}}, "mangle OUTPUT 4, mangle PREROUTING 1, mangle ISTIO_INBOUND 1, mangle PREROUTING 2"},
		{"marked from the start: not routed again", all(owner(1337, 1337), marked(1337, 1337), state(redirect.Established)),
			packet.Fate{Mark: packet.Mark{Value: 1337}, ConnMark: packet.Mark{Value: 1337}}, "mangle OUTPUT 4"},
		{"the pod calls itself through the proxy", all(owner(1337, 1337), lo, to("10.244.0.2:9080")),
			packet.Fate{Outcome: packet.Redirected, Port: 15006, Local: true,
				Mark: packet.Mark{Value: 1338}},
			"mangle OUTPUT 2, mangle OUTPUT 3, nat OUTPUT 1, nat ISTIO_OUTPUT 2, nat ISTIO_IN_REDIRECT 1, mangle PREROUTING 1, mangle ISTIO_INBOUND 6"},
		{"what nat lets pass is handed over on lo", all(owner(1337, 1), lo, to("10.244.0.2:15008")),
			packet.Fate{Outcome: packet.Handed, Port: 15006, Local: true, Mark: packet.Mark{Value: 1337}}, ""},
		{"the app calls", func(*packet.Packet) {}, packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true}, ""},
	}},
	"resolving": {resolving, []row{
		{"the app asks", all(udp, to("10.96.0.10:53")), packet.Fate{Outcome: packet.Redirected, Port: 15053, Local: true, Zone: 2},
			"raw OUTPUT 3, nat OUTPUT 1, nat ISTIO_OUTPUT 3, nat ISTIO_OUTPUT_DNS 1"},
		{"the proxy asks: the first zone counts", all(udp, owner(1337, 1), to("10.96.0.10:53")), packet.Fate{Zone: 1}, "raw OUTPUT 1, raw OUTPUT 3, nat OUTPUT 1, nat ISTIO_OUTPUT 2"},
		{"the proxy answers", all(udp, owner(1337, 1), at("127.0.0.1:15053"), lo), packet.Fate{Zone: 2, Local: true}, ""},
		{"the server answers", all(udp, enters, at("10.96.0.10:53")), packet.Fate{Zone: 1}, "raw PREROUTING 1"},
		{"a server in the pod answers: tracked on its way out", all(udp, lo, at("10.96.0.10:53")), packet.Fate{Local: true}, "nat OUTPUT 1, nat ISTIO_OUTPUT 3, raw PREROUTING 1"},
	}},
	"mixed": {mixed, []row{
		{"the new destination is asked", all(udp, between(5000, 53)), packet.Fate{Outcome: packet.Redirected, Port: 15053, Local: true, Zone: 3, Mark: packet.Mark{Value: 0x10}}, ""},
		{"a mark of raw is asked in raw, and not routed", all(udp, between(1500, 8080)), packet.Fate{Mark: packet.Mark{Value: 9}}, ""},
		{"routed by mark, seen by nat on eth0", to("1.2.3.4:81"), packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true, Mark: packet.Mark{Value: 1337}}, ""},
		{"routed by mark", all(to("1.2.3.4:81"), state(redirect.Established)), packet.Fate{Local: true, Mark: packet.Mark{Value: 1337}}, ""},
		{"accepted in mangle, asked in nat", all(owner(150, 6), to("1.2.3.4:81")), packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true}, ""},
		{"one of its owners", all(owner(150, 5), to("1.2.3.4:80")), packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true}, "mangle OUTPUT 2, nat OUTPUT 2"},
		{"an invalid packet meets no mark of a connection", all(owner(1, 1), to("1.2.3.4:80"), marked(3, 4), state(redirect.Invalid)),
			packet.Fate{Mark: packet.Mark{Value: 3}, ConnMark: packet.Mark{Value: 4}}, "mangle OUTPUT 2"},
		{"invalid on lo", all(lo, state(redirect.Invalid), to("1.2.3.4:80")), packet.Fate{Outcome: packet.Dropped, Local: true}, ""},
		{"dropped before it leaves", all(lo, at("192.168.3.4:22")), packet.Fate{Outcome: packet.Dropped}, ""},
		{"given back", all(to("1.2.3.4:80"), marked(3, 4)), packet.Fate{Outcome: packet.Redirected, Port: 15001, Local: true, Mark: packet.Mark{Value: 4}, ConnMark: packet.Mark{Value: 4}}, ""},
		{"saved", all(udp, between(5000, 8080), marked(0x20, 4)), packet.Fate{Mark: packet.Mark{Value: 0x20}, ConnMark: packet.Mark{Value: 0x20}}, ""},
		{"handed without a mark", all(udp, enters, func(p *packet.Packet) { p.In = "net1" }, marked(3, 0)), packet.Fate{Outcome: packet.Handed, Port: 9000, Mark: packet.Mark{Value: 3}}, ""},
		{"another interface", all(enters, at("10.1.1.1:5"), func(p *packet.Packet) { p.In = "eth1" }), packet.Fate{Outcome: packet.Redirected, Port: 1}, ""},
	}},
	// The kernel takes no such rules: where a packet comes in it has no socket.
	"owners": {"*mangle\n-A PREROUTING -m owner --uid-owner 1000 -j DROP\n-A PREROUTING -m owner ! --uid-owner 1000 -j MARK --set-mark 5\nCOMMIT\n", []row{
		{"of what enters", enters, packet.Fate{Mark: packet.Mark{Value: 5}}, "mangle PREROUTING 2"},
		{"of what comes over lo", lo, packet.Fate{Local: true, Mark: packet.Mark{Value: 5}}, "mangle PREROUTING 2"},
	}},
	"policies": {"*mangle\n:OUTPUT DROP\n-A OUTPUT -p udp -j RETURN\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n*nat\n:PREROUTING DROP\nCOMMIT\n", []row{
		{"RETURN from a hook is the policy", udp, packet.Fate{Outcome: packet.Dropped}, "mangle OUTPUT 1"},
		{"ACCEPT is not", func(*packet.Packet) {}, packet.Fate{}, "mangle OUTPUT 2"},
		{"nat is asked for new packets", enters, packet.Fate{Outcome: packet.Dropped}, "-"},
		{"nat is not asked for others", all(enters, state(redirect.Established)), packet.Fate{}, "-"},
		{"nor for those that went out", all(lo), packet.Fate{Local: true}, ""},
	}},
}

type change = func(*packet.Packet)

func all(changes ...change) change {
	return func(p *packet.Packet) {
		for _, c := range changes {
			c(p)
		}
	}
}

func to(s string) change {
	return func(p *packet.Packet) { p.Destination = netip.MustParseAddrPort(s) }
}
func at(s string) change   { return func(p *packet.Packet) { p.Source = netip.MustParseAddrPort(s) } }
func udp(p *packet.Packet) { p.Protocol = redirect.UDP }
func lo(p *packet.Packet)  { p.Out = "lo" }
func enters(p *packet.Packet) {
	p.In, p.Out, p.Owner = "eth0", "", nil
}
func ownerless(p *packet.Packet) { p.Owner = nil }
func owner(uid, gid uint32) change {
	return func(p *packet.Packet) { p.Owner = &packet.Owner{UID: uid, GID: gid} }
}
func state(s redirect.State) change { return func(p *packet.Packet) { p.State = s } }
func marked(mark, conn uint32) change {
	return func(p *packet.Packet) { p.Mark, p.ConnMark = mark, conn }
}
func between(source, destination uint16) change {
	return func(p *packet.Packet) {
		p.Source = netip.AddrPortFrom(p.Source.Addr(), source)
		p.Destination = netip.AddrPortFrom(p.Destination.Addr(), destination)
	}
}

func TestFates(t *testing.T) {
	t.Parallel()
	for name, listing := range listings {
		tables := read(t, listing.text)
		for _, row := range listing.rows {
			for _, f := range redirect.Families {
				t.Run(name+"/"+row.name+"/"+f.String(), func(t *testing.T) {
					t.Parallel()
					check(t, tables, row, f)
				})
			}
		}
	}
}

func check(t *testing.T, tables *Tables, row row, f redirect.Family) {
	t.Helper()
	p := packet.Packet{Protocol: redirect.TCP, Out: "eth0", Owner: &packet.Owner{UID: 1000, GID: 1000}, State: redirect.New,
		Source: netip.MustParseAddrPort("10.244.0.2:40000"), Destination: netip.MustParseAddrPort("1.2.3.4:80")}
	row.change(&p)
	if f == redirect.IPv6 {
		p.Source, p.Destination = address6(p.Source), address6(p.Destination)
	}
	got, q := tables.Fate(p.Class())
	if q != nil {
		t.Fatalf("asked about field %d", q.Field)
	}
	var met []string
	for _, m := range got.Met {
		met = append(met, fmt.Sprint(m.Table, " ", m.Chain, " ", m.Index+1))
	}
	list := strings.Join(met, ", ")
	if row.met != "" && row.met != list && (row.met != "-" || list != "") {
		t.Errorf("met  %s\nwant %s", list, row.met)
	}
	want := row.want
	if want.Outcome == 0 {
		want.Outcome = packet.Passes
	}
	why := got.String()
	got.Met = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("fate (- want, + got):\n%s\n%s", cmp.Diff(want, got), why)
	}
}

// address6 is the address in IPv6 that inIPv6 makes of one in IPv4, or one near to it.
func address6(a netip.AddrPort) netip.AddrPort {
	for _, pair := range [][2]string{{"127.0.0.1", "::1"}, {"127.0.0.6", "::6"}, {"10.96.0.10", "fd00:96::a"},
		{"10.96.3.4", "fd00:96::3:4"}, {"192.168.3.4", "fd00:168::3:4"}, {"10.1.1.1", "fd00::1"}} {
		if a.Addr() == netip.MustParseAddr(pair[0]) {
			return netip.AddrPortFrom(netip.MustParseAddr(pair[1]), a.Port())
		}
	}
	four := a.Addr().As4()
	sixteen := [16]byte{0x20, 1, 0xd, 0xb8, 12: four[0], four[1], four[2], four[3]}
	return netip.AddrPortFrom(netip.AddrFrom16(sixteen), a.Port())
}

// TestQuestions asks a class what it does not know.
func TestQuestions(t *testing.T) {
	t.Parallel()
	tables := read(t, transparent+redirecting)
	for _, c := range packet.Everything() {
		_, q := tables.Fate(c)
		if q == nil || q.Field != packet.Protocol || !q.Set.Equal(packet.Numbers(redirect.TCP)) {
			t.Errorf("leaves %t: got %v, want a question about TCP", c.Leaves, q)
		}
	}
	var c packet.Class
	for _, one := range packet.Everything() {
		if one.Leaves && one.Family == redirect.IPv4 {
			c = one
		}
	}
	c = c.With(packet.Protocol, packet.Numbers(redirect.TCP)).With(packet.Interface, packet.Names("eth+")).
		With(packet.State, packet.Numbers(redirect.Established)).
		With(packet.Destination, packet.Networks(netip.MustParsePrefix("1.2.3.4/32")))
	none := packet.Range(1338, 2000)
	f, q := tables.Fate(c.With(packet.ConnMark, none))
	if q != nil || f.Mark.From != packet.PacketMark || f.ConnMark.From != packet.ConnMark {
		t.Errorf("got %+v and %v, want the marks of the start", f, q)
	}
	if _, q := tables.Fate(c); q == nil || q.Field != packet.ConnMark {
		t.Errorf("got %v, want a question about the connection's mark", q)
	}
	// the mark is restored there, and that is a change for those that did not have it
	c = c.With(packet.ConnMark, packet.Numbers[uint32](1337))
	if _, q := tables.Fate(c); q == nil || q.Field != packet.PacketMark {
		t.Errorf("got %v, want a question about the packet's mark", q)
	}
	restored := "*mangle\n-A OUTPUT -j CONNMARK --restore-mark\n-A OUTPUT -m mark --mark 3 -j DROP\nCOMMIT\n"
	_, q = read(t, restored).Fate(c.With(packet.ConnMark, packet.Range(0, 9)))
	if q == nil || q.Field != packet.ConnMark {
		t.Errorf("got %v, want a question about the mark that was restored", q)
	}
}
