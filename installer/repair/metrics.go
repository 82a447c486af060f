package repair

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/audit"
)

type metrics struct {
	pods    *prometheus.GaugeVec
	skipped *prometheus.GaugeVec
	unhit   prometheus.Gauge
	repairs *prometheus.CounterVec
	passes  *prometheus.CounterVec
	last    prometheus.Gauge
	dropped prometheus.Counter
}

// How a pass went.
const (
	complete = "complete"
	partial  = "partial"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	m := &metrics{
		pods: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_cni_checked_pods",
			Help: "Running pods with a sidecar on this node, by what the last pass left them: " +
				"redirected, missing any redirection, " +
				"altered, programmed by another (foreign), in an excluded namespace, " +
				"skipped for a reason of their own, starting, or with an unreachable network " +
				"namespace.",
		}, []string{"finding"}),
		skipped: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_cni_skipped_pods",
			Help: "Running pods with a sidecar on this node that nothing redirects, by why they " +
				"are left alone.",
		}, []string{"reason"}),
		unhit: with.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_unhit_pods",
			Help: "Redirected pods of this node of whose rules none has met a packet since they " +
				"were programmed, " +
				"10 minutes ago or earlier: pods without any traffic, or with a kernel of their " +
				"own, which never meets the rules.",
		}),
		repairs: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_repairs_total",
			Help: "Pods without redirection that were to be repaired or evicted, by what came " +
				"of it.",
		}, []string{"result"}),
		passes: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_repair_passes_total",
			Help: "Passes over the node's pods, complete or, with an error, partial.",
		}, []string{"result"}),
		last: with.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_repair_last_pass_timestamp_seconds",
			Help: "When the last complete pass over the node's pods ended.",
		}),
		dropped: with.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_cni_dropped_records_total",
			Help: "Records of redirected pods that were deleted since their network namespace " +
				"was gone.",
		}),
	}
	for _, f := range audit.Findings {
		m.pods.WithLabelValues(string(f))
	}
	for _, o := range Outcomes {
		if o != Reported {
			m.repairs.WithLabelValues(string(o))
		}
	}
	for _, result := range []string{complete, partial} {
		m.passes.WithLabelValues(result)
	}
	return m
}

func (m *metrics) finish(s Summary, err error) {
	unhit, counts, skipped := 0, map[Finding]int{}, map[redirect.Skip]float64{}
	for i := range s.Results {
		x := &s.Results[i]
		counts[x.now()]++
		if x.Unhit {
			unhit++
		}
		if x.Finding == Skipped {
			skipped[x.Skip]++
		}
		if x.Outcome != "" && x.Outcome != Reported {
			m.repairs.WithLabelValues(string(x.Outcome)).Inc()
		}
	}
	for _, f := range audit.Findings {
		m.pods.WithLabelValues(string(f)).Set(float64(counts[f]))
	}
	m.unhit.Set(float64(unhit))
	m.skipped.Reset()
	for reason, n := range skipped {
		m.skipped.WithLabelValues(string(reason)).Set(n)
	}
	m.dropped.Add(float64(s.Dropped))
	if err != nil {
		m.passes.WithLabelValues(partial).Inc()
		return
	}
	m.passes.WithLabelValues(complete).Inc()
	m.last.SetToCurrentTime()
}
