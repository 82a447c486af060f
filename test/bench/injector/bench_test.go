// Package injector_test measures the injector beside a webhook that allows everything, in the same
// run and under the same load: what it shows is what injection costs.
//
//	make bench BENCH=Webhook
//
// Be aware: load, both webhooks and whatever else runs share the machine's cores. What is compared
// takes turns, so that what disturbs one disturbs the other; only the differences are budgeted.
package injector_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	rate      = 500 // requests a second
	rounds    = 10  // in which the two take turns
	roundTime = 2 * time.Second

	medianBudget = 2 * time.Millisecond // more than the empty webhook
	tailBudget   = 10 * time.Millisecond
	memoryBudget = 60 << 20 // bytes, resident
)

// BenchmarkWebhook has both webhooks asked about a pod of 4 KB that Istio 1.1's template is for.
func BenchmarkWebhook(b *testing.B) {
	programs := build(b)
	empty, injector := programs.startEmpty(b), programs.startInjector(b)
	body := reviewOf(b)
	empty.check(b, body, false)
	injector.check(b, body, true)
	for b.Loop() {
		empty.load(b, body) // warms up
		injector.load(b, body)
		empty.score, injector.score = score{}, score{}
		for range rounds {
			empty.load(b, body)
			injector.load(b, body)
		}
	}
	report(b, empty, injector)
}

func report(b *testing.B, empty, injector *webhook) {
	base, have := empty.score, injector.score
	if len(base.took) == 0 || len(have.took) == 0 {
		b.Fatalf("nothing was answered: %v", slices.Concat(base.mistakes, have.mistakes)[0])
	}
	slices.Sort(base.took)
	slices.Sort(have.took)
	b.ReportMetric(0, "ns/op") // of a loop that takes as long as it is told to
	lines := "\n" + latency(b, "p50", median, medianBudget, base, have) +
		latency(b, "p99", tail, tailBudget, base, have)
	b.ReportMetric(have.rate(), "requests/s")
	lines += fmt.Sprintf("answered %.0f requests a second (empty webhook %.0f), budget %d: %s\n",
		have.rate(), base.rate(), rate, mark(have.rate() >= 0.98*rate))
	for _, one := range []score{base, have} {
		if len(one.mistakes) > 0 {
			lines += fmt.Sprintf("not answered: %d, such as: %v\n", len(one.mistakes),
				one.mistakes[0])
		}
	}
	b.ReportMetric(millis(have.each()), "ms-CPU/request")
	lines += fmt.Sprintf("CPU of a request %.2f ms, empty webhook %.2f ms\n", millis(have.each()),
		millis(base.each()))
	resident, most := injector.memory(b)
	b.ReportMetric(mebi(resident), "MiB-resident")
	b.ReportMetric(mebi(most), "MiB-resident-most")
	lines += fmt.Sprintf("resident memory %.1f MiB, at most %.1f MiB, budget %.0f MiB: %s",
		mebi(resident), mebi(most), mebi(memoryBudget), mark(most <= memoryBudget))
	b.Log(lines)
}

const (
	median = 0.5
	tail   = 0.99
)

// latency is a line about a share of all requests.
func latency(b *testing.B, name string, share float64, budget time.Duration,
	base, have score) string {
	b.Helper()
	was, is := quantile(share, base.took), quantile(share, have.took)
	b.ReportMetric(millis(was), "ms-"+name+"-empty")
	b.ReportMetric(millis(is), "ms-"+name)
	b.ReportMetric(millis(is-was), "ms-"+name+"-more")
	return fmt.Sprintf("%s %.2f ms, empty webhook %.2f ms: %.2f ms more, budget %.0f ms: %s\n",
		name, millis(is), millis(was), millis(is-was), millis(budget), mark(is-was <= budget))
}

// quantile is the least of sorted values that such a share of all does not exceed.
func quantile(share float64, sorted []time.Duration) time.Duration {
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return d.Seconds() * 1000 }

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func mark(holds bool) string {
	if holds {
		return "ok"
	}
	return "over"
}
