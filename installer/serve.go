package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/installer/loglevel"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

const headTimeout = 5 * time.Second

// pages is what the daemon's pages say.
type pages struct {
	now     atomic.Pointer[reconcile.State]
	synced  func() bool  // whether the cache was filled once
	serving func() bool  // whether the plugin is answered
	beat    atomic.Int64 // when the loop last turned
}

// ready says why the node is not, in a sentence.
func (p *pages) ready() (string, bool) {
	now := p.now.Load()
	switch {
	case !now.Ready():
		return fmt.Sprintf("not ready: %s: %s", now.Why, now.Text), false
	case now.Why == reconcile.Effective && !p.serving():
		return "not ready: the plugin's questions are not answered yet", false
	case !p.synced():
		return "not ready: the cache of the node's pods was not filled yet: the API server has " +
			"not answered", false
	}
	return "ready: " + now.Text, true
}

// lost is how long the loop may be silent before the kubelet had better start the container anew.
const lost = 5 * time.Minute

func (p *pages) alive() bool { return time.Since(time.Unix(p.beat.Load(), 0)) < lost }

// set notes the state.
func (p *pages) set(now reconcile.State) { p.now.Store(&now) }

func (p *pages) handler(reg prometheus.Gatherer, level zap.AtomicLevel) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		text, ok := p.ready()
		say(w, text, ok)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if p.alive() {
			say(w, "alive", true)
			return
		}
		say(w, "the daemon's loop has been silent for long", false)
	})
	mux.Handle(loglevel.Page, loglevel.Handler(level))
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

func say(w http.ResponseWriter, text string, ok bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, text) // whoever has hung up does not want it
}

// serve answers on a listener until ctx ends.
func serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
