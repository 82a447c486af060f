// Allow is a webhook that reads each review and allows what it is about: what it takes, TLS, HTTP
// and JSON take. It is the server of the injector, with nothing behind it.
//
//	allow 127.0.0.1:9443 127.0.0.1:9467 tls.crt tls.key
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "allow:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("read arguments: %d, want two addresses, certificate and key", len(args))
	}
	webhooks, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	status, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(args[2], args[3])
	if err != nil {
		return err
	}
	return server.Run(ctx, server.Options{
		Webhooks: webhooks, Status: status,
		Paths:       map[string]http.Handler{"/inject": http.HandlerFunc(allow)},
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil },
		Ready:       func() (string, bool) { return "ready", true },
		Metrics:     prometheus.NewRegistry(),
		Level:       zap.NewAtomicLevel(),
	}, zap.NewNop())
}

func allow(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "want a review with a request", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // whoever has hung up does not want it
}
