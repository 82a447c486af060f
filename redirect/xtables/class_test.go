package xtables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// node is a class with its fate, or the question that splits it.
type node struct {
	class    packet.Class
	fate     packet.Fate
	question *packet.Question
	yes, no  *node
}

// decided splits a class until each part has a fate.
func decided(t testing.TB, tables *Tables, c packet.Class) (n *node, parts int) {
	t.Helper()
	n = &node{class: c}
	if n.fate, n.question = tables.Fate(c); n.question == nil {
		return n, 1
	}
	yes, no := c.Split(*n.question)
	if yes.Empty() || no.Empty() {
		t.Fatalf("question about field %d does not split its class", n.question.Field)
	}
	var a, b int
	n.yes, a = decided(t, tables, yes)
	n.no, b = decided(t, tables, no)
	return n, a + b
}

// find returns the part that has the packet.
func (n *node) find(p packet.Class) *node {
	for n.question != nil {
		if yes, _ := p.Of(n.question.Field).Meets(n.question.Set); yes {
			n = n.yes
		} else {
			n = n.no
		}
	}
	return n
}

var interesting = map[string][]uint32{
	"port": {0, 1, 22, 53, 80, 100, 443, 999, 1000, 2000, 5353, 5355, 8000, 8100, 15001, 15006, 15008, 15020, 15021, 15053, 15090, 65535},
	"id":   {0, 5, 100, 200, 1337},
	"mark": {0, 7, 9, 0x10, 0x20, 1337, 1338},
}

var addresses = map[redirect.Family][]string{
	redirect.IPv4: {"127.0.0.1", "127.0.0.6", "10.96.0.0", "10.96.0.10", "10.111.255.255", "192.168.0.0", "192.168.255.255", "10.0.0.0", "1.2.3.4"},
	redirect.IPv6: {"::1", "::6", "fd00:96::", "fd00:96::a", "fd00:96::fff:ffff", "fd00:168::", "fd00:168:ffff:ffff:ffff:ffff:ffff:ffff", "fd00::", "2001:db8::1"},
}

func randomPacket(r *rand.Rand) packet.Packet {
	near := func(what string) uint32 {
		all := interesting[what]
		n := all[r.IntN(len(all))] + uint32(r.IntN(5)/2) - uint32(r.IntN(5)/4)
		if what == "port" {
			n &= 0xffff
		}
		return n % (1<<32 - 1)
	}
	f := redirect.Families[r.IntN(2)]
	at := func() netip.AddrPort {
		a := netip.MustParseAddr(addresses[f][r.IntN(len(addresses[f]))])
		if r.IntN(4) == 0 {
			a = a.Next()
		} else if r.IntN(4) == 0 && a.Prev().IsValid() {
			a = a.Prev()
		}
		return netip.AddrPortFrom(a, uint16(near("port")))
	}
	p := packet.Packet{Source: at(), Destination: at(), Mark: near("mark"), ConnMark: near("mark"),
		Protocol: []redirect.Protocol{6, 6, 6, 17, 17, 1, 58, 132}[r.IntN(8)],
		State:    redirect.States[r.IntN(4)]}
	name := []string{"eth0", "eth1", "lo", "lo", "net1", "ne", "lo0"}[r.IntN(7)]
	if r.IntN(3) > 0 {
		if p.Out = name; r.IntN(4) > 0 {
			p.Owner = &packet.Owner{UID: near("id"), GID: near("id")}
		}
	} else if p.In = name; name == "lo" {
		p.In = "eth0"
	}
	return p
}

// TestClassesAreTheirPackets compares the fate of each class with those of packets in it.
func TestClassesAreTheirPackets(t *testing.T) {
	t.Parallel()
	for name, listing := range map[string]string{"redirect": redirecting, "transparent": transparent + redirecting, "resolving": resolving, "mixed": mixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables := read(t, listing)
			all := map[bool]map[redirect.Family]*node{true: {}, false: {}}
			for _, c := range packet.Everything() {
				n, parts := decided(t, tables, c)
				all[c.Leaves][c.Family] = n
				t.Logf("%s, leaves %t: %d classes", c.Family, c.Leaves, parts)
			}
			r := rand.New(rand.NewPCG(1, 2))
			outcomes := map[packet.Outcome]int{}
			for range 100_000 {
				p := randomPacket(r)
				one, q := tables.Fate(p.Class())
				if q != nil {
					t.Fatalf("%+v: asked about field %d of a single packet", p, q.Field)
				}
				outcomes[one.Outcome]++
				c := p.Class()
				part := all[c.Leaves][c.Family].find(c)
				if !part.class.Has(p) {
					t.Fatalf("%+v is not in its class", p)
				}
				if want := known(part.fate, p); !reflect.DeepEqual(one, want) {
					t.Fatalf("%+v (- class, + packet):\n%s", p, cmp.Diff(want, one))
				}
			}
			t.Log(outcomes)
		})
	}
}

// known is the fate with the marks that this packet has.
func known(f packet.Fate, p packet.Packet) packet.Fate {
	own := map[packet.Field]uint32{packet.PacketMark: p.Mark, packet.ConnMark: p.ConnMark}
	for _, m := range []*packet.Mark{&f.Mark, &f.ConnMark} {
		if m.From != packet.NoField {
			*m = packet.Mark{Value: own[m.From]}
		}
	}
	return f
}

func longListing(n int) string {
	var b strings.Builder
	b.WriteString("*nat\n")
	for i := range n {
		fmt.Fprintf(&b, "-A OUTPUT -d 20.%d.%d.0/24 -j RETURN\n", i>>7, i<<1&0xff)
	}
	b.WriteString("-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n")
	return b.String()
}

// TestLongListing is about time: every class meets every rule. A machine that is busy, or stands
// still, is slow once, and not each time.
func TestLongListing(t *testing.T) {
	t.Parallel()
	listing, all := longListing(1000), 0
	var took time.Duration
	for try := range 10 {
		start := time.Now()
		tables, err := Read(listing, "")
		if err != nil {
			t.Fatal(err)
		}
		readTook := time.Since(start)
		all = 0
		for _, c := range packet.Everything() {
			_, parts := decided(t, tables, c)
			all += parts
		}
		took = time.Since(start)
		t.Logf("try %d: read in %s, %d classes after %s", try+1, readTook, all, took)
		if took <= 5*time.Second {
			break
		}
	}
	if all < 1000 {
		t.Errorf("%d classes, want one or more a rule", all)
	}
	if took > 5*time.Second {
		t.Errorf("took %s at the last of ten tries, want well under a second", took)
	}
}
