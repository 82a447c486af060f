package compare_test

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/compare"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
	"github.com/sidecar-cni/sidecar-cni/redirect/simulate"
	"github.com/sidecar-cni/sidecar-cni/test/matrix"
)

// BenchmarkDefaultPod compares istio-init's rules for a pod that asks for nothing with ours.
func BenchmarkDefaultPod(b *testing.B) {
	for b.Loop() {
		other, _ := secondPen(b, matrix.Plain(), true)
		compare.Compare(other, simulate.New(redirect.Compile(policyOf(b, matrix.Plain()))))
	}
}

// BenchmarkLists compares 1,000 CIDRs and 100 ports with as many others, lists with lists and lines
// with lines. The metric peak is of the heap.
func BenchmarkLists(b *testing.B) {
	one, other := withLists(b, 0), withLists(b, 1)
	for name, sides := range map[string][2]packet.Side{
		"lists":         {simulate.New(one), simulate.New(other)},
		"lines":         {listed(b, one), listed(b, other)},
		"lines, lists":  {listed(b, one), simulate.New(other)},
		"lines of both": {listed(b, one), simulate.New(one)},
	} {
		b.Run(name, func(b *testing.B) {
			var peak uint64
			for b.Loop() {
				found := compare.Compare(sides[0], sides[1])
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapSys)
				b.ReportMetric(float64(len(found)), "differences")
			}
			b.ReportMetric(float64(peak>>20), "peak-MiB")
		})
	}
}

// withLists is a pod with long lists. Those of different turns have half of their items in common.
func withLists(b *testing.B, turn int) redirect.Ruleset {
	p := policyOf(b, matrix.Plain())
	for i := range 1000 {
		n := i + turn*500
		p.Outbound.ExcludeCIDRs = append(p.Outbound.ExcludeCIDRs, netip.PrefixFrom(
			netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0}), 25))
	}
	for i := range 100 {
		p.Outbound.ExcludePorts = append(p.Outbound.ExcludePorts, uint16(2000+2*i+turn*100))
		p.Inbound.ExcludePorts = append(p.Inbound.ExcludePorts, uint16(3000+2*i+turn*100))
	}
	return redirect.Compile(p)
}

// BenchmarkMatrix compares istio-init's rules with ours for each pod of the matrix.
func BenchmarkMatrix(b *testing.B) {
	all := append(matrix.Alone(), matrix.Pairs()...)
	for b.Loop() {
		for _, r := range all {
			other, _ := secondPen(b, r, true)
			compare.Compare(other, simulate.New(redirect.Compile(policyOf(b, r))))
		}
	}
	b.ReportMetric(float64(len(all)), "policies")
}
