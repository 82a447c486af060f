// Package server serves the webhooks over TLS, and beside them over plain HTTP what the process
// says of itself.
//
//	err := server.Run(ctx, server.Options{Webhooks: l, Status: s, Paths: paths}, log)
//
// Be aware:
//   - When ctx ends, the server is not ready, and goes on answering for Options.Drain, since the
//     API servers learn late that a replica is gone. Each answer then closes its connection.
//   - A connection that stayed idle all the while is closed at the end. A request that is sent at
//     this very moment fails. The API server closes its idle connections after 90 seconds: where
//     even this must not happen, Drain is longer than that.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Options are what is served, and where.
type Options struct {
	Webhooks net.Listener // TLS is put around it
	Status   net.Listener // plain HTTP: /readyz, /healthz, /metrics, /loglevel
	// Paths are the webhooks: "/inject", "/strip".
	Paths map[string]http.Handler
	// Certificate is asked at each handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Ready says in a sentence why the process is or is not ready.
	Ready   func() (string, bool)
	Metrics prometheus.Gatherer // at /metrics
	Level   zap.AtomicLevel     // of the log, at /loglevel
	// Drain is how long requests are still answered after ctx has ended, unready.
	Drain time.Duration
}

const (
	headTimeout = 10 * time.Second
	// readTimeout is longer than the API server waits for an answer, at most 30 seconds.
	readTimeout  = 35 * time.Second
	writeTimeout = 70 * time.Second // from the end of the head on
	// idleTimeout is longer than that of the API server: who closes first breaks off the request
	// that the other is about to send.
	idleTimeout = 3 * time.Minute
	maxHead     = 16 << 10
	// maxConnections has room for what three API servers have in flight by default, each 200
	// requests that change something, and for others.
	maxConnections = 800
	fullInterval   = 10 * time.Second // between log lines that there is no room for more
	// endTimeout is for what is being answered when Drain is over.
	endTimeout = 30 * time.Second
)

// Run serves until ctx has ended and the last request was answered. A listener that fails ends it,
// with an error.
func Run(ctx context.Context, o Options, log *zap.Logger) error {
	webhooks := newWebhooks(o, func() bool { return ctx.Err() != nil }, log)
	listener := newFairListener(o.Webhooks, maxConnections, log)
	webhooks.ConnState = listener.setState
	status := newStatus(o, func() bool { return ctx.Err() != nil }, log)
	failed := make(chan error, 2)
	go func() { failed <- explain(o.Webhooks, webhooks.ServeTLS(listener, "", "")) }()
	go func() { failed <- explain(o.Status, status.Serve(o.Status)) }()

	err := wait(ctx, o.Drain, failed, log)
	if err == nil {
		err = end(webhooks)
	}
	return errors.Join(err, webhooks.Close(), status.Close())
}

// wait returns once ctx has ended and drain is over; an error is that of a listener.
func wait(ctx context.Context, drain time.Duration, failed <-chan error, log *zap.Logger) error {
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("began to drain", zap.Duration("drain", drain))
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case err := <-failed:
		return err
	case <-timer.C:
		return nil
	}
}

// end waits for the requests that are being answered.
func end(webhooks *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := webhooks.Shutdown(ctx); err != nil {
		return fmt.Errorf("answer the last requests: %w", err)
	}
	return nil
}

// explain says which listener failed.
func explain(l net.Listener, err error) error {
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

func newWebhooks(o Options, draining func() bool, log *zap.Logger) *http.Server {
	mux := http.NewServeMux()
	for path, handler := range o.Paths {
		mux.Handle("POST "+path, handler)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "want a POST to the path of one of the webhooks", http.StatusNotFound)
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // the API server uses nothing else with webhooks
	return logErrors(&http.Server{
		Handler:           closing(draining, mux),
		Protocols:         protocols,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: o.Certificate},
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
	}, log)
}

// closing has each answer close its connection while the server drains. Server.SetKeepAlivesEnabled
// would close idle connections at once, under requests that are on their way.
func closing(draining func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
