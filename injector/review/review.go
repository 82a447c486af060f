// Package review answers the API server's requests for admission of pods: what is to be changed of
// a pod that is to be created.
//
//	reviewer := review.New(review.Options{Config: configuration.Current, Metrics: registry, Log: log})
//	mux.Handle("POST /inject", reviewer.Inject())
//	mux.Handle("POST /strip", reviewer.Strip())
//
// Be aware:
//   - /inject denies a pod that has to be injected and cannot be, and answers with an HTTP error
//     where nothing is known of the pod; the failurePolicy of the webhook decides then.
//   - /strip denies nothing: a pod whose istio-init cannot leave starts with it.
//   - The log has the names of pods, and nothing else of what is in them. What was wrong with one
//     is said to whoever creates it.
package review

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/config"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
)

// Options are what a Reviewer answers by.
type Options struct {
	// Config returns the configuration in force, or says why there is none yet.
	Config func() (*config.Config, error)
	// Validation is put into each pod that is injected or stripped; nil: nothing is.
	Validation *validation.Container
	Metrics    prometheus.Registerer // of requests by decision, and of their time
	Log        *zap.Logger           // a line an answer, but not for all nonsense
}

// Reviewer answers requests for admission.
type Reviewer struct {
	of      Options
	budget  budget
	metrics metrics
	// Whoever reaches the port can send what is no review: not all of that is logged.
	malformed *rate.Limiter
}

// New returns one.
func New(o Options) *Reviewer {
	return &Reviewer{of: o, budget: newBudget(), metrics: newMetrics(o.Metrics),
		malformed: rate.NewLimiter(1, 10)}
}

// Inject answers at /inject: the proxy is put into the pod, without istio-init.
func (r *Reviewer) Inject() http.Handler {
	return &webhook{name: "inject", decide: r.inject, reviewer: r}
}

// Strip answers at /strip: istio-init is taken out of a pod that another injector has filled.
func (r *Reviewer) Strip() http.Handler {
	return &webhook{name: "strip", decide: r.strip, reviewer: r}
}
