package review

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts answers. The values of its labels are closed lists.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(to prometheus.Registerer) metrics {
	in := promauto.With(to)
	return metrics{
		requests: in.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_injector_requests_total",
			Help: "Requests for admission, by webhook, outcome and reason.",
		}, []string{"webhook", "outcome", "reason"}),
		duration: in.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sidecar_cni_injector_request_duration_seconds",
			Help:    "How long requests for admission took, from their head to the answer.",
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"webhook"}),
	}
}

func (m metrics) count(webhook string, a *answer, took time.Duration) {
	m.requests.WithLabelValues(webhook, a.outcome, a.reason).Inc()
	m.duration.WithLabelValues(webhook).Observe(took.Seconds())
}
