package guard

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
)

// The reasons of Events, as `kubectl describe pod` shows them. What is behind each stands in
// docs/signals.md.
const (
	startRefused  = "SidecarStartRefused"      // the guard refused the pod, which does not start
	guardRedirect = "SidecarRedirectedByGuard" // the plugin missed it, the guard redirected it
)

var redirectedWhen = map[moment]string{
	atStart: "before its first container: nothing of its traffic went past the sidecar",
	atConnect: "while no container of it ran: what an earlier one has sent went past the " +
		"sidecar",
	atContainer: "before this container: what an earlier one has sent went past the sidecar",
}

// report says what became of a sandbox: in the metrics, and where somebody has to know it in the
// log and in an Event.
func (g *Guard) report(one sandbox, when moment, v verdict, took time.Duration) {
	g.metrics.decided(when, v.outcome, took)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: one.pod.Namespace,
		Name: one.pod.Name, UID: types.UID(one.uid)}
	level := zap.DebugLevel
	switch v.outcome {
	case redirected:
		level = zap.InfoLevel
		g.deps.Events.Note(about, guardRedirect, "nobody had redirected the pod when its network "+
			"was set up; sidecar-cni has, "+redirectedWhen[when])
	case refused:
		level = zap.WarnLevel
		g.deps.Events.Warn(about, startRefused, v.err.Error())
	case open, undecided:
		if g.isNews(one, v) {
			level = zap.WarnLevel
		}
	case skipped, recorded, foreign, passed:
	}
	for _, notice := range v.notices {
		g.deps.Events.Warn(about, agent.Bypassed, notice)
	}
	fields := []zap.Field{zap.String("pod", one.pod.Namespace+"/"+one.pod.Name),
		zap.String("container", one.id), zap.String("outcome", string(v.outcome)),
		zap.String("path", string(when)), zap.Duration("took", took)}
	if v.reason != "" {
		fields = append(fields, zap.String("reason", v.reason))
	}
	if v.err != nil {
		fields = append(fields, zap.Error(v.err))
	}
	if len(v.warnings) > 0 {
		fields = append(fields, zap.Strings("problems", v.warnings))
	}
	g.log(level, "decided about sandbox", fields...)
}

// isNews reports whether a sandbox was something else when the guard connected last.
func (g *Guard) isNews(one sandbox, v verdict) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[one.id] != v.outcome
}

type metrics struct {
	connected *prometheus.GaugeVec
	sandboxes *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	m := &metrics{
		connected: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_cni_guard_connected",
			Help: "Whether the container runtime asks the guard about sandboxes, 1 or 0. Not " +
				"there where the guard is off, or the runtime has no NRI socket.",
		}, nil),
		sandboxes: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_guard_sandboxes_total",
			Help: "Sandboxes that the guard was asked or told about, by when and by what " +
				"became of them.",
		}, []string{"when", "outcome"}),
		durations: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sidecar_cni_guard_duration_seconds",
			Help: "How long the guard took to decide about a sandbox.",
			Buckets: []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5,
				1, 2},
		}, []string{"when", "outcome"}),
	}
	for _, when := range moments {
		for _, what := range outcomes {
			m.sandboxes.WithLabelValues(string(when), string(what))
		}
	}
	return m
}

func (m *metrics) decided(when moment, what outcome, took time.Duration) {
	m.sandboxes.WithLabelValues(string(when), string(what)).Inc()
	m.durations.WithLabelValues(string(when), string(what)).Observe(took.Seconds())
}

// present notes that the runtime asks the guard.
func (m *metrics) present() { m.connected.WithLabelValues().Set(1) }

// absent notes that there is a socket, and the runtime does not ask.
func (m *metrics) absent() { m.connected.WithLabelValues().Set(0) }

// gone notes that there is no socket.
func (m *metrics) gone() { m.connected.Reset() }
