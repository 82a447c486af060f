package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/serviceaccount"
	"github.com/sidecar-cni/sidecar-cni/installer/node"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

// nodeMetrics are those about the node. Packages agent and repair have theirs.
type nodeMetrics struct {
	chain     *prometheus.GaugeVec
	passes    *prometheus.CounterVec
	last      prometheus.Gauge
	conflicts *prometheus.CounterVec
	usable    *prometheus.GaugeVec
	expiry    prometheus.Gauge
	shown     reconcile.State
}

// The results of a pass.
const (
	passUnchanged = "unchanged"
	passChanged   = "changed"
	passFailed    = "failed"
)

func newMetrics(reg prometheus.Registerer) *nodeMetrics {
	with := promauto.With(reg)
	m := &nodeMetrics{
		chain: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_cni_chain_state",
			Help: "The state of the node's chain: 1 for the reason and the way that hold, 0 for " +
				"the reasons that do not.",
		}, []string{"reason", "way"}),
		passes: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_passes_total",
			Help: "Passes over the node, by whether they changed something or left the chain not " +
				"effective.",
		}, []string{"result"}),
		last: with.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_last_pass_timestamp_seconds",
			Help: "When the last pass over the node ended, in seconds since 1970.",
		}),
		conflicts: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_cni_chain_conflicts_total",
			Help: "How often another writer took the plugin out of the chain, by the file.",
		}, []string{"file"}),
		usable: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_cni_backend_usable",
			Help: "Whether the node can be programmed with a backend, 1 or 0.",
		}, []string{"backend"}),
		expiry: with.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_token_expiry_timestamp_seconds",
			Help: "When the plugin's token for the API server runs out, in seconds since 1970; 0 " +
				"if it does not.",
		}),
	}
	for _, result := range []string{passUnchanged, passChanged, passFailed} {
		m.passes.WithLabelValues(result)
	}
	m.show(reconcile.State{Why: reconcile.Starting})
	return m
}

// show sets the state of the chain. Its way is that of the entry, if there is one.
func (m *nodeMetrics) show(s reconcile.State) {
	m.chain.WithLabelValues(string(s.Why), string(s.Way)).Set(1)
	if (m.shown.Why != s.Why || m.shown.Way != s.Way) && m.shown.Way != "" {
		m.chain.DeleteLabelValues(string(m.shown.Why), string(m.shown.Way))
	}
	m.shown = reconcile.State{Why: s.Why, Way: s.Way}
	for _, r := range reconcile.Reasons() {
		if r != s.Why {
			m.chain.WithLabelValues(string(r), "").Set(0)
		} else if s.Way != "" {
			m.chain.DeleteLabelValues(string(r), "")
		}
	}
}

// passed counts a pass.
func (m *nodeMetrics) passed(s reconcile.State, changed bool) {
	result := passUnchanged
	switch {
	case !s.Ready() && s.Why != reconcile.Uninstalled:
		result = passFailed
	case changed:
		result = passChanged
	}
	m.passes.WithLabelValues(result).Inc()
	m.last.Set(float64(time.Now().Unix()))
	m.show(s)
}

// expires reads the plugin's token where the plugin reads it.
func (m *nodeMetrics) expires(c node.Credentials) {
	token, _ := os.ReadFile(filepath.Join(c.Dir, names.Token)) // none says nothing
	claims, _ := serviceaccount.ReadToken(token)
	m.expiry.Set(float64(max(0, int64(claims.Expires))))
}

func (m *nodeMetrics) probed(found reconcile.Backends) {
	for backend, lack := range found.Lacks {
		works := 0.0
		if lack == "" {
			works = 1
		}
		m.usable.WithLabelValues(backend).Set(works)
	}
}
