package compare

import (
	"cmp"
	"slices"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// share is which part of a pod's traffic some values of a field have, at a guess. What is listed
// for no value is spread over all of them.
type share struct {
	field packet.Field
	set   packet.Set
	part  float64
}

var shares = []share{
	{packet.Protocol, packet.Numbers(redirect.TCP), 0.8},
	{packet.Protocol, packet.Numbers(redirect.UDP), 0.19},
	{packet.State, packet.Numbers(redirect.New), 0.5},
	{packet.State, packet.Numbers(redirect.Established), 0.49},
	{packet.Interface, packet.Names("eth+"), 0.7},
	{packet.Interface, packet.Names("lo"), 0.25},
	{packet.Socket, packet.Range(1, 1), 0.999},
	{packet.PacketMark, packet.Range(0, 0), 0.999},
	{packet.ConnMark, packet.Range(0, 0), 0.999},
}

// sortByTraffic puts first what a pod most likely has most of.
func sortByTraffic(differences []Difference) {
	slices.SortStableFunc(differences, func(a, b Difference) int {
		return cmp.Compare(traffic(b.Class), traffic(a.Class))
	})
}

func traffic(c packet.Class) float64 {
	all, product := c.Whole(), 0.7
	if c.Family == redirect.IPv6 {
		product = 0.3
	}
	for _, f := range packet.Fields {
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
