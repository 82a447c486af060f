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
)

const headTimeout = 5 * time.Second

// status is what the daemon's pages say.
type status struct {
	now     atomic.Pointer[state]
	synced  func() bool  // whether the cache was filled once
	serving atomic.Bool  // whether the plugin is answered
	beat    atomic.Int64 // when the loop last turned
}

// ready says why the node is not, in a sentence.
func (s *status) ready() (string, bool) {
	now := s.now.Load()
	switch {
	case !now.ready():
		return fmt.Sprintf("not ready: %s: %s", now.reason, now.text), false
	case now.reason == effective && !s.serving.Load():
		return "not ready: the plugin's questions are not answered yet", false
	case !s.synced():
		return "not ready: the cache of the node's pods was not filled yet: the API server has not answered", false
	}
	return "ready: " + now.text, true
}

// lost is how long the loop may be silent before the kubelet had better start the container anew.
const lost = 5 * time.Minute

func (s *status) alive() bool { return time.Since(time.Unix(s.beat.Load(), 0)) < lost }

// set notes the state.
func (s *status) set(now state) { s.now.Store(&now) }

func (s *status) pages(reg prometheus.Gatherer, level http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		text, ok := s.ready()
		say(w, text, ok)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.alive() {
			say(w, "alive", true)
			return
		}
		say(w, "the daemon's loop has been silent for long", false)
	})
	mux.Handle(levelPage, fromHere(level))
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
func serve(ctx context.Context, l net.Listener, pages http.Handler) error {
	server := &http.Server{Handler: pages, ReadHeaderTimeout: headTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
