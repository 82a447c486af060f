package packet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

func samples() []Packet {
	four := netip.MustParseAddrPort("203.0.113.7:40000")
	six := netip.MustParseAddrPort("[2001:db8::7]:40000")
	return []Packet{
		{Out: "eth0", Protocol: redirect.TCP, Source: four, Destination: four,
			Owner: &Owner{UID: 1000, GID: 7}, State: redirect.New},
		{Out: "lo", Protocol: redirect.UDP, Source: six, Destination: six, Mark: 5, ConnMark: 6,
			State: redirect.Invalid},
		{In: "net1", Protocol: 1, Source: six, Destination: six, State: redirect.Related},
		{In: "a", Protocol: redirect.TCP, Source: four, Destination: four,
			State: redirect.Established},
	}
}

// A packet is the only one in its class, and in exactly one class of all.
func TestEachPacketIsInOneClass(t *testing.T) {
	t.Parallel()
	for _, p := range samples() {
		back := p.Class().Example()
		if diff := cmp.Diff(p, back, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("the packet of its class (-want +got):\n%s", diff)
		}
		in := 0
		for _, c := range Everything() {
			if c.Has(p) {
				in++
			}
		}
		if in != 1 {
			t.Errorf("%+v is in %d classes", p, in)
		}
		for _, other := range samples() {
			if p.Class().Has(other) != (p.In+p.Out == other.In+other.Out) {
				t.Errorf("%+v in the class of %+v", other, p)
			}
		}
	}
}

func TestASplitLosesNothing(t *testing.T) {
	t.Parallel()
	q := Question{DestinationPort, Numbers[uint16](40000)}
	for _, c := range Everything() {
		in, out := c.Split(q)
		for _, p := range samples() {
			if c.Has(p) && in.Has(p) == out.Has(p) {
				t.Errorf("%+v: in %t, out %t", p, in.Has(p), out.Has(p))
			}
		}
		if in.Empty() || out.Empty() || !in.With(Source, Set{}).Empty() {
			t.Errorf("empty: in %t, out %t", in.Empty(), out.Empty())
		}
		if rest, _ := out.Split(q); !rest.Empty() {
			t.Error("a second split finds what the first has taken")
		}
	}
}

// What somebody would send is a better example than the lowest numbers.
func TestExamplesAreUsual(t *testing.T) {
	t.Parallel()
	for _, c := range Everything() {
		to := map[redirect.Family]string{redirect.IPv4: "203.0.113.7",
			redirect.IPv6: "2001:db8:d::7"}[c.Family]
		if p := c.Example(); p.Destination.Addr().String() != to {
			t.Errorf("over %s to %s", c.Family, p.Destination)
		}
	}
	c := Everything()[0]
	p := c.Example()
	if p.Out != "eth0" || p.Protocol != redirect.TCP || p.Mark != 0 || p.State != redirect.New ||
		p.Destination.Port() != 8080 || p.Owner == nil {
		t.Errorf("of all that is sent: %+v", p)
	}
	excluded := c.With(Interface, Names("eth0+").Without(Names("eth0")))
	if p := excluded.Example(); p.Out != "eth00" || !excluded.Has(p) {
		t.Errorf("of names that only begin with eth0: %+v", p)
	}
	c = c.With(DestinationPort, Range(15008, 15008)).With(UID, Range(1337, 1337)).
		With(Interface, Names("eth+").Without(Names("eth0")))
	if p := c.Example(); !c.Has(p) || p.Destination.Port() != 15008 || p.Owner.UID != 1337 {
		t.Errorf("of a narrow class: %+v", p)
	}
}
