// Package pages serves what a daemon on a node says of itself over HTTP: whether it is alive, why
// it is ready or not, its metrics, and its log level.
//
//	p := pages.New(pods.Synced, shared.Serving)
//	p.Set(state)
//	err := p.Serve(ctx, listener, pages.Sources{Metrics: registry, Level: level})
package pages

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

	"github.com/sidecar-cni/sidecar-cni/daemon/loglevel"
	"github.com/sidecar-cni/sidecar-cni/installer/reconcile"
)

const headTimeout = 5 * time.Second

// Pages is what the daemon's pages say.
type Pages struct {
	now     atomic.Pointer[reconcile.State]
	synced  func() bool
	serving func() bool
	beat    atomic.Int64 // when the loop last turned
}

// New returns the pages of a daemon that has just begun. synced reports whether the cache of the
// node's pods was filled once, serving whether the plugin is answered; without them they are and it
// is.
func New(synced, serving func() bool) *Pages {
	always := func() bool { return true }
	if synced == nil {
		synced = always
	}
	if serving == nil {
		serving = always
	}
	p := &Pages{synced: synced, serving: serving}
	p.Set(reconcile.State{Why: reconcile.Starting})
	p.Beat(time.Now())
	return p
}

// Set notes the node's state.
func (p *Pages) Set(now reconcile.State) { p.now.Store(&now) }

// Now is the state that was noted last.
func (p *Pages) Now() reconcile.State { return *p.now.Load() }

// Beat notes that the daemon's loop has turned.
func (p *Pages) Beat(at time.Time) { p.beat.Store(at.Unix()) }

// ready says why the node is not, in a sentence.
func (p *Pages) ready() (string, bool) {
	now := p.Now()
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

// silence is how long the loop may not turn before the kubelet had better start the container anew.
const silence = 5 * time.Minute

func (p *Pages) alive() bool { return time.Since(time.Unix(p.beat.Load(), 0)) < silence }

// Sources are what is served beside the state.
type Sources struct {
	Metrics prometheus.Gatherer // in Prometheus' form at /metrics
	Level   zap.AtomicLevel     // of the log; it can be set
}

func (p *Pages) handler(from Sources) http.Handler {
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
	mux.Handle(loglevel.Page, loglevel.Handler(from.Level))
	mux.Handle("GET /metrics", promhttp.HandlerFor(from.Metrics, promhttp.HandlerOpts{}))
	return mux
}

func say(w http.ResponseWriter, text string, ok bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, text) // whoever has hung up does not want it
}

// Serve answers on a listener until ctx ends.
func (p *Pages) Serve(ctx context.Context, l net.Listener, from Sources) error {
	server := &http.Server{Handler: p.handler(from), ReadHeaderTimeout: headTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
