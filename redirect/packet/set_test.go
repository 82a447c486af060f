package packet

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// bits are the numbers from 0 to 63 of which a set is made.
type bits uint64

func (b bits) set() Set {
	var spans []Span
	for n := range uint32(64) {
		if b>>n&1 == 1 {
			spans = append(spans, Range(n, n).spans...)
		}
	}
	rand.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	return setOf(spans)
}

func bitsOf(s Set) bits {
	var b bits
	for n := range uint32(64) {
		if s.Has(Value{low: uint64(n)}) {
			b |= 1 << n
		}
	}
	return b
}

// patterns has few and long spans as well as many short ones.
func pattern(random *rand.Rand) bits {
	b := bits(random.Uint64())
	switch random.IntN(4) {
	case 0:
		return b & bits(random.Uint64()) & bits(random.Uint64())
	case 1:
		return b | bits(random.Uint64()) | bits(random.Uint64())
	case 2:
		return 1<<(b%64) - 1
	}
	return b
}

// Sets do what the same operations do with bits.
func TestSetsAreLikeBits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		a, b := pattern(random), pattern(random)
		s, o := a.set(), b.set()
		for name, pair := range map[string][2]bits{
			"and": {bitsOf(s.And(o)), a & b}, "without": {bitsOf(s.Without(o)), a &^ b},
			"union": {bitsOf(Union(s, o)), a | b},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("%x %s %x is %x, want %x", a, name, b, pair[0], pair[1])
			}
		}
		in, out := s.Meets(o)
		if in != (a&b != 0) || out != (a&^b != 0) {
			t.Fatalf("%x meets %x: in %t, out %t", a, b, in, out)
		}
		if s.Empty() != (a == 0) || s.Single() != (a != 0 && a&(a-1) == 0) ||
			s.Equal(o) != (a == b) {
			t.Fatalf("%x, %x: empty %t, single %t, equal %t", a, b, s.Empty(), s.Single(),
				s.Equal(o))
		}
		checkForm(t, s.And(o))
		checkForm(t, s.Without(o))
	}
}

// checkForm wants spans in order, with a gap between neighbours: else equal sets would not be.
func checkForm(t *testing.T, s Set) {
	t.Helper()
	for i, span := range s.spans {
		if span.Last.less(span.First) || i > 0 && !s.spans[i-1].Last.next().less(span.First) {
			t.Fatalf("spans %v", s.spans)
		}
	}
}

func TestNetworksHoldTheirAddresses(t *testing.T) {
	t.Parallel()
	for prefix, rows := range map[string]map[string]bool{
		"10.1.0.0/16":       {"10.1.0.0": true, "10.1.255.255": true, "10.0.255.255": false, "10.2.0.0": false},
		"0.0.0.0/0":         {"0.0.0.0": true, "255.255.255.255": true},
		"192.0.2.7/32":      {"192.0.2.7": true, "192.0.2.6": false, "192.0.2.8": false},
		"2001:db8::/32":     {"2001:db8::": true, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff": true, "2001:db7::": false, "2001:db9::": false},
		"2001:db8::/96":     {"2001:db8::ffff:ffff": true, "2001:db8::1:0:0": false},
		"::/0":              {"::": true, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": true},
		"fe80::1:2:3:4/64":  {"fe80::": true, "fe80::ffff:ffff:ffff:ffff": true, "fe80:0:0:1::": false},
		"fe80::8000:0/97":   {"fe80::8000:0": true, "fe80::7fff:ffff": false},
		"8000::/1":          {"8000::": true, "7fff::": false},
		"255.255.255.255/1": {"128.0.0.0": true, "127.255.255.255": false},
	} {
		s := Networks(netip.MustParsePrefix(prefix))
		for addr, want := range rows {
			a := netip.MustParseAddr(addr)
			if s.Has(addrValue(a)) != want {
				t.Errorf("%s in %s: want %t", addr, prefix, want)
			}
			if back := addrValue(a).Addr(redirect.FamilyOf(a)); back != a {
				t.Errorf("%s comes back as %s", a, back)
			}
		}
	}
}

func TestNamesAreThoseThatARuleMeans(t *testing.T) {
	t.Parallel()
	names := []string{"eth0", "eth", "eth1", "eth00", "et", "tap", "tap0", "tapestry", "taq", "lo",
		"l", "loo", "a234567890123", "123456789012345", "é"}
	for _, i := range []redirect.Interface{"eth0", "eth+", "tap+", "lo", "+", "l+", "é+"} {
		s := Names(i)
		for _, name := range names {
			have := Names(redirect.Interface(name))
			if in, out := have.Meets(s); in != i.Holds(name) || in == out {
				t.Errorf("%s in %s: %t, %t, want %t", name, i, in, out, i.Holds(name))
			}
			if back := have.spans[0].First.Name(); back != name {
				t.Errorf("%s comes back as %s", name, back)
			}
		}
	}
}
