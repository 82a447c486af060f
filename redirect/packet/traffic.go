package packet

import "github.com/sidecar-cni/sidecar-cni/redirect"

// share is which part of a pod's traffic some values of a field have, at a guess. What is listed
// for no value is spread over all of them.
type share struct {
	field Field
	set   Set
	part  float64
}

var shares = []share{
	{Protocol, Numbers(redirect.TCP), 0.8},
	{Protocol, Numbers(redirect.UDP), 0.19},
	{State, Numbers(redirect.New), 0.5},
	{State, Numbers(redirect.Established), 0.49},
	{Interface, Names("eth+"), 0.7},
	{Interface, Names("lo"), 0.25},
	{Socket, Range(1, 1), 0.999},
	{PacketMark, Range(0, 0), 0.999},
	{ConnMark, Range(0, 0), 0.999},
}

// Traffic returns which part of a pod's traffic the packets of a class are, at a guess.
func (c Class) Traffic() float64 {
	all, product := c.Whole(), 0.7
	if c.Family == redirect.IPv6 {
		product = 0.3
	}
	for _, f := range Fields {
		part, rest := 0.0, 1.0
		for _, s := range shares {
			possible, _ := s.set.Meets(all.Of(f))
			if s.field != f || !possible {
				continue
			}
			rest -= s.part
			if in, _ := s.set.Meets(c.Of(f)); in {
				part += s.part
			}
		}
		product *= part + rest*c.Of(f).Magnitude()/all.Of(f).Magnitude()
	}
	return product
}
