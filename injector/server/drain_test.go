package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sidecar-cni/sidecar-cni/injector/server"
)

const drain = 20 * time.Second

// drained is a server in a synctest bubble.
type drained struct {
	t                *testing.T
	webhooks, status *wire
	trusted          *x509.CertPool
	end              context.CancelFunc
	ended            chan error
	asked            atomic.Int64
}

func newDrained(t *testing.T, cert tls.Certificate, trusted *x509.CertPool) *drained {
	t.Helper()
	d := &drained{t: t, webhooks: newWire(), status: newWire(), trusted: trusted,
		ended: make(chan error, 1)}
	o := optionsOf(cert)
	o.Webhooks, o.Status, o.Drain = d.webhooks, d.status, drain
	o.Paths["/slow"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(5 * time.Second)
		_, _ = w.Write([]byte("late"))
	})
	ctx, cancel := context.WithCancel(t.Context())
	d.end = cancel
	go func() { d.ended <- server.Run(ctx, o, zap.NewNop()) }()
	return d
}

// client keeps its connections as the API server does, or has a new one for each request.
func (d *drained) client(keep bool) *http.Client { return d.clientFrom(keep, d.webhooks.dial) }

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d *drained) clientFrom(keep bool, dial dialer) *http.Client {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: !keep,
		IdleConnTimeout: 90 * time.Second,
		TLSClientConfig: &tls.Config{RootCAs: d.trusted, MinVersion: tls.VersionTLS12}}
	return &http.Client{Transport: transport}
}

// ask posts once, and reports whether the answer closes its connection.
func (d *drained) ask(c *http.Client, path string) (closes bool) {
	d.t.Helper()
	answer, err := post(d.t, c, "https://example.com"+path)
	if err != nil {
		d.t.Error(err)
		return false
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != 200 {
		d.t.Errorf("%s, %v", answer.Status, err)
	}
	d.asked.Add(1)
	return answer.Close
}

// ready asks the status page.
func (d *drained) ready() int {
	d.t.Helper()
	transport := &http.Transport{DialContext: d.status.dial, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Get("http://example.com/readyz")
	if err != nil {
		d.t.Error(err)
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

func TestNothingThatIsAskedWhileTheServerDrainsGetsAnError(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		idle := d.client(true)
		if d.ask(idle, "/inject") {
			t.Error("an answer closes its connection, and the server does not drain")
		}
		const before = time.Second
		over := time.Now().Add(before + drain)
		var clients sync.WaitGroup
		for i := range 6 {
			clients.Go(func() {
				c := d.client(i%2 == 0)
				defer c.CloseIdleConnections()
				for time.Until(over) > time.Millisecond {
					d.ask(c, "/inject")
					time.Sleep(73 * time.Millisecond)
				}
			})
		}
		time.Sleep(before - time.Nanosecond)
		if got := d.ready(); got != http.StatusOK {
			t.Errorf("readyz is %d before the end, want 200", got)
		}
		time.Sleep(time.Nanosecond)
		d.end()
		if got := d.ready(); got != http.StatusServiceUnavailable {
			t.Errorf("readyz is %d at once, want 503", got)
		}
		time.Sleep(drain - time.Second)
		for _, c := range []*http.Client{idle, d.client(true), d.client(false)} {
			if !d.ask(c, "/inject") {
				t.Error("an answer does not close its connection, and the server drains")
			}
		}
		d.ask(d.client(true), "/slow") // asked before the end, answered after it
		clients.Wait()
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
		if late := time.Since(over); late < 4*time.Second || late > 6*time.Second {
			t.Errorf("the server ended %v after its drain, want 4 s, for the last answer", late)
		}
		if got := d.asked.Load(); got < 6*200 {
			t.Errorf("%d requests, want more", got)
		}
	})
}

// A connection that is never used again does not hold up the end.
func TestIdleConnectionsEndWithTheServer(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		d.ask(d.client(true), "/inject")
		began := time.Now()
		d.end()
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < drain || took > drain+time.Second {
			t.Errorf("the server ended after %v, want %v", took, drain)
		}
	})
}

// The API server closes a connection that was idle for 90 seconds. It never finds it closed before.
func TestTheClientClosesIdleConnectionsFirst(t *testing.T) {
	t.Parallel()
	cert, trusted := certified(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDrained(t, cert, trusted)
		c := d.client(true)
		for range 3 {
			d.ask(c, "/inject")
			time.Sleep(90*time.Second - time.Millisecond)
		}
		if got := d.webhooks.dials.Load(); got != 1 {
			t.Errorf("%d connections, want 1: the server has closed those that were idle", got)
		}
		c.CloseIdleConnections()
		d.end()
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
	})
}
