package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
)

// newStatus serves what the process says of itself, while it drains, too.
func newStatus(o Options, draining func() bool, log *zap.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		text, ready := o.Ready()
		if draining() {
			text, ready = "not ready: the process is about to end", false
		}
		say(w, text, ready)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		say(w, "alive", true)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	mux.Handle(loglevel.Page, loglevel.Handler(o.Level))
	return logErrors(&http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
	}, log)
}

func say(w http.ResponseWriter, text string, ok bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, text) // whoever has hung up does not want it
}
