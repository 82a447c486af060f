package compare_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// policyOf returns what a pod of the matrix asks for.
func policyOf(t testing.TB, r matrix.Request) redirect.Policy {
	t.Helper()
	d, err := redirect.Decide(r.Pod, r.Config)
	if err != nil || d.Skip != "" || d.AskMore {
		t.Fatalf("%s: not ours: %+v, %v", r.Name, d, err)
	}
	return d.Policy
}

// constants are what rules ask about, with the values next to them.
type constants struct {
	names                      []string
	sources, destinations      []netip.Addr
	sourcePorts, ports         []uint16
	uids, gids, marks, onConns []uint32
}

// usualConstants are some that no rule need have.
func usualConstants() constants {
	return constants{
		names:        []string{"eth0", "lo", "x"},
		sources:      addrs("10.244.0.2", "fd00::2", "127.0.0.1", "::1"),
		destinations: addrs("203.0.113.7", "2001:db8:d::7", "10.244.0.2", "fd00::2", "0.0.0.0", "::"),
		sourcePorts:  []uint16{0, 40000},
		ports:        []uint16{0, 80, 65535},
		uids:         []uint32{0, 1000}, gids: []uint32{0, 1000},
		marks: []uint32{0, 7}, onConns: []uint32{0, 7},
	}
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func (c *constants) of(rs redirect.Ruleset) {
	for _, chain := range rs.Chains {
		for _, r := range chain.Rules {
			m := r.If
			for _, i := range []redirect.Interface{m.In, m.Out} {
				stem := strings.TrimSuffix(string(i), "+")
				if stem != "" {
					c.names = append(c.names, stem, stem+"0", stem[:len(stem)-1]+"_")
				}
			}
			c.sources = append(c.sources, around(m.Source.Prefixes)...)
			c.destinations = append(c.destinations, around(m.Destination.Prefixes)...)
			for _, p := range m.SourcePort.List {
				c.sourcePorts = append(c.sourcePorts, p-1, p, p+1)
			}
			for _, p := range append(m.DestinationPort.List, r.Then.Port) {
				c.ports = append(c.ports, p-1, p, p+1)
			}
			c.uids = append(c.uids, beside(m.UID)...)
			c.gids = append(c.gids, beside(m.GID)...)
			c.marks = append(c.marks, m.Mark.Value, m.Mark.Value+1, r.Then.Mark)
			c.onConns = append(c.onConns, m.ConnMark.Value, m.ConnMark.Value+1, r.Then.Mark)
		}
	}
}

// around returns the first and the last address of networks, and those beside them.
func around(prefixes []netip.Prefix) []netip.Addr {
	var list []netip.Addr
	for _, p := range prefixes {
		span := packet.Networks(p).Spans()[0]
		f := redirect.FamilyOf(p.Addr())
		for _, a := range []netip.Addr{span.First.Addr(f), span.Last.Addr(f)} {
			for _, beside := range []netip.Addr{a.Prev(), a, a.Next()} {
				if beside.IsValid() {
					list = append(list, beside)
				}
			}
		}
	}
	return list
}

// beside returns the first and the last id of ranges, and those next to them that anybody can have.
func beside(ids redirect.IDs) []uint32 {
	var list []uint32
	for _, r := range ids {
		list = append(list, r.First, r.Last, r.Last+1, max(r.First, 1)-1)
	}
	return slices.DeleteFunc(list, func(id uint32) bool { return id == math.MaxUint32 })
}

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

// packet makes one up.
func (c *constants) packet(random *rand.Rand) packet.Packet {
	p := packet.Packet{
		Protocol: pick(random,
			[]redirect.Protocol{redirect.TCP, redirect.TCP, redirect.UDP, 1, 255}),
		Mark: pick(random, c.marks), ConnMark: pick(random, c.onConns),
		State: pick(random, redirect.States),
	}
	to := pick(random, c.destinations)
	from := pick(random, c.sources)
	for from.Is4() != to.Is4() {
		from = pick(random, c.sources)
	}
	p.Source = netip.AddrPortFrom(from, pick(random, c.sourcePorts))
	p.Destination = netip.AddrPortFrom(to, pick(random, c.ports))
	name := pick(random, c.names)
	if p.Out = name; random.IntN(3) == 0 && name != "lo" {
		p.In, p.Out = name, ""
	} else if random.IntN(6) > 0 {
		p.Owner = &packet.Owner{UID: pick(random, c.uids), GID: pick(random, c.gids)}
	}
	return p
}

// fateOf is the fate of a packet, or a class of one, as far as it can differ.
func fateOf(side packet.Side, class packet.Class) packet.Fate {
	fate, _ := side.Fate(class)
	fate.Mark, fate.ConnMark, fate.Met = fate.Mark.In(class), fate.ConnMark.In(class), nil
	if fate.Outcome == packet.Dropped {
		return packet.Fate{Outcome: packet.Dropped}
	}
	return fate
}

func same(a, b packet.Fate) bool {
	return a.Outcome == b.Outcome && a.Port == b.Port && a.Mark == b.Mark &&
		a.ConnMark == b.ConnMark && a.Zone == b.Zone && a.Local == b.Local
}

// packets is how many are tried, in all.
const packets = 10_000_000

// No packet fares differently that is in none of the classes that Compare reports, and every packet
// of those classes does.
func TestNoPacketIsForgotten(t *testing.T) {
	t.Parallel()
	tried := packets
	if testing.Short() {
		tried /= 100
	}
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			tryPackets(t, uint64(worker), tried/workers)
		})
	}
}

const workers = 4

func tryPackets(t *testing.T, worker uint64, tried int) {
	t.Helper()
	all := append(matrix.Alone(), matrix.Pairs()...)
	const turns = 250
	each, differing := tried/turns, 0
	for turn := range turns {
		random := rand.New(rand.NewPCG(worker, uint64(turn)))
		a := redirect.Compile(policyOf(t, pick(random, all)))
		b := redirect.Compile(policyOf(t, pick(random, all)))
		if random.IntN(2) == 0 {
			b = mutated(random, a)
		}
		known := usualConstants()
		known.of(a)
		known.of(b)
		sideA, sideB := simulate.New(a), simulate.New(b)
		differences := compare.Compare(sideA, sideB)
		for range each {
			p := known.packet(random)
			one := p.Class()
			fateA, fateB := fateOf(sideA, one), fateOf(sideB, one)
			reported := 0
			for _, d := range differences {
				if d.Class.Meets(one) {
					reported++
				}
			}
			if !same(fateA, fateB) {
				differing++
			}
			if wrongly(p, fateA, fateB, reported) {
				t.Fatalf("turn %d: %+v (owner %+v): %d reported\n%s\n%s", turn, p, p.Owner, reported,
					fateA, fateB)
			}
		}
	}
	t.Logf("%d of %d packets differ", differing, tried)
	if differing < tried/100 {
		t.Errorf("only %d packets differ: too few to show anything", differing)
	}
}
