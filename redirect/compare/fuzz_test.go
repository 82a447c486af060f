package compare_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// FuzzCompare changes one of two rulesets several times, plays one as the other's listing, and
// looks for packets of which Compare says nothing.
func FuzzCompare(f *testing.F) {
	all := append(matrix.Alone(), matrix.Pairs()...)
	for i := 0; i < len(all); i += 7 {
		f.Add(uint16(i), uint16(i*11), uint8(i%4), uint64(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, one, other uint16, changed uint8, seed uint64, listing bool) {
		random := rand.New(rand.NewPCG(seed, 1))
		a := redirect.Compile(policyOf(t, all[int(one)%len(all)]))
		b := redirect.Compile(policyOf(t, all[int(other)%len(all)]))
		for range changed % 8 {
			if mutants := mutants(b); len(mutants) > 0 {
				b = pick(random, mutants).rules
			}
		}
		known := usualConstants()
		known.of(a)
		known.of(b)
		sideA, sideB := packet.Side(simulate.New(a)), simulate.New(b)
		if listing {
			sideA = listed(t, a)
		}
		differences := compare.Compare(sideA, sideB)
		for range 500 {
			p := known.packet(random)
			one := p.Class()
			fateA, fateB := fateOf(sideA, one), fateOf(sideB, one)
			reported := 0
			for _, d := range differences {
				if d.Class.Meets(one) {
					reported++
				}
			}
			if wrongly(p, fateA, fateB, reported) {
				t.Fatalf("%+v (owner %+v): %d reported\n%s\n%s", p, p.Owner, reported, fateA, fateB)
			}
		}
	})
}

// wrongly says whether a packet that differs is not in exactly one difference, or one that does not
// is in any.
func wrongly(p packet.Packet, a, b packet.Fate, reported int) bool {
	if same(a, b) {
		// Nothing is reported, but for which of two equal marks is kept.
		return reported > 0 && p.Mark != p.ConnMark
	}
	return reported != 1
}
