package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/injector/server"
)

// A wire is a listener in memory. What goes through it does not leave a synctest bubble, where a
// minute takes no time.
type wire struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
	dials    atomic.Int64
}

func newWire() *wire {
	return &wire{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case conn := <-w.accepted:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (*wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9443} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return w.dialFrom(ctx, "192.0.2.2")
}

// dialFrom connects from an address.
func (w *wire) dialFrom(ctx context.Context, address string) (net.Conn, error) {
	port := w.dials.Add(1)
	ours, theirs := net.Pipe()
	theirs = from{theirs, &net.TCPAddr{IP: net.ParseIP(address), Port: int(port)}}
	select {
	case w.accepted <- theirs:
		return ours, nil
	case <-w.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// from is a connection whose other side has an address.
type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }

// certified returns a certificate for 127.0.0.1 and example.com, and whom to trust for it.
func certified(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	return s.TLS.Certificates[0], trusted
}

func optionsOf(cert tls.Certificate) server.Options {
	return server.Options{
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil },
		Ready:       func() (string, bool) { return "ready: all is there", true },
		Metrics:     prometheus.NewRegistry(),
		Level:       zap.NewAtomicLevel(),
		Paths: map[string]http.Handler{
			"/inject": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("injected"))
			}),
		},
	}
}

// served is a server on loopback, with what is known of it.
type served struct {
	webhooks, status string // addresses
	trusted          *x509.CertPool
	ended            chan error
}

// serve runs a server until the test ends.
func serve(t *testing.T, log *zap.Logger, change func(*server.Options)) served {
	t.Helper()
	cert, trusted := certified(t)
	o := optionsOf(cert)
	o.Webhooks, o.Status = listen(t), listen(t)
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := served{o.Webhooks.Addr().String(), o.Status.Addr().String(), trusted, make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.ended <- server.Run(ctx, o, log)
	}()
	t.Cleanup(func() { cancel(); <-over })
	return s
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// client trusts the server.
func (s served) client(t *testing.T, change func(*tls.Config)) *http.Client {
	t.Helper()
	cfg := &tls.Config{RootCAs: s.trusted, MinVersion: tls.VersionTLS12}
	if change != nil {
		change(cfg)
	}
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func post(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(req)
}
