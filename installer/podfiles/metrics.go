package podfiles

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"
)

// counts are the metrics.
type counts struct {
	files *prometheus.GaugeVec
	fresh prometheus.Gauge
}

func newCounts(reg prometheus.Registerer) counts {
	with := promauto.With(reg)
	c := counts{
		files: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_cni_pod_files",
			Help: "Pods of this node that shall have a file for the plugin, by what became of " +
				"it: written, too large, without room beside the others, or failed to be written.",
		}, []string{"state"}),
		fresh: with.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_cni_pod_files_refreshed_timestamp_seconds",
			Help: "When this agent last said that the files of pods are fresh, in seconds since " +
				"1970; 0 if it has not, or is not in charge.",
		}),
	}
	c.show(nil)
	return c
}

func (c counts) show(files map[types.UID]*file) {
	by := map[state]int{}
	for _, f := range files {
		by[f.state]++
	}
	for _, s := range states {
		c.files.WithLabelValues(string(s)).Set(float64(by[s]))
	}
}
