package server_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sidecar-cni/sidecar-cni/injector/server"
)

func TestWebhooksAreServedByHTTP1OverTLS(t *testing.T) {
	t.Parallel()
	s := serve(t, zap.NewNop(), nil)
	answer, err := post(t, s.client(t, nil), "https://"+s.webhooks+"/inject?timeout=5s")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 || string(body) != "injected" || answer.ProtoMajor != 1 {
		t.Errorf("%s %s, %q, %v; want 200 by HTTP/1.1", answer.Proto, answer.Status, body, err)
	}
}

func TestWhatIsNoWebhook(t *testing.T) {
	t.Parallel()
	s := serve(t, zap.NewNop(), nil)
	for _, row := range []struct{ method, path string }{
		{http.MethodGet, "/inject"}, {http.MethodPost, "/"}, {http.MethodPost, "/inject/more"},
		{http.MethodGet, "/metrics"}, {http.MethodGet, "/loglevel"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), row.method, "https://"+s.webhooks+row.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.client(t, nil).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "POST") {
			t.Errorf("%v: %s, %q, %v; want 404 and what is wanted", row, answer.Status, body, err)
		}
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, zap.NewNop(), nil)
	answer, err := post(t, s.client(t, func(c *tls.Config) {
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}), "https://"+s.webhooks+"/inject")
	if err == nil {
		answer.Body.Close()
		t.Fatal("TLS 1.1 was accepted")
	}
	if !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("%v: want one about the version", err)
	}
}

// Whoever knocks at the port without TLS is seen at debug, and cannot fill the log.
func TestFailedHandshakesAreLoggedAtDebugAndNotAll(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zapcore.DebugLevel)
	s := serve(t, zap.New(core), nil)
	const knocks = 200
	for range knocks {
		conn, err := net.Dial("tcp", s.webhooks)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "nonsense, and no handshake\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the server has hung up, after it has logged
		conn.Close()
	}
	entries := logged.FilterMessage("refused handshake").All()
	if len(entries) == 0 || len(entries) >= knocks {
		t.Errorf("%d lines about %d handshakes, want some", len(entries), knocks)
	}
	for _, entry := range logged.All() {
		if entry.Level != zapcore.DebugLevel {
			t.Errorf("%s at %s, want debug", entry.Message, entry.Level)
		}
	}
}

func TestALargeHeadIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, zap.NewNop(), nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.webhooks+"/inject", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	answer, err := s.client(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s, want 431", answer.Status)
	}
}

func TestStatusPages(t *testing.T) {
	t.Parallel()
	s := serve(t, zap.NewNop(), func(o *server.Options) {
		o.Ready = func() (string, bool) { return "not ready: there is no certificate yet", false }
		o.Level.SetLevel(zapcore.WarnLevel)
	})
	for path, want := range map[string]string{
		"/healthz":  "200 alive",
		"/readyz":   "503 not ready: there is no certificate yet",
		"/metrics":  "200",
		"/loglevel": `200 {"level":"warn"}`,
		"/inject":   "404",
	} {
		answer, err := http.Get("http://" + s.status + path)
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(answer.Body).ReadString('\n')
		answer.Body.Close()
		if got := fmt.Sprint(answer.StatusCode, " ", line); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// A process that nobody can ask any more has to be started anew.
func TestAListenerThatFailsEndsTheServer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"webhooks", "status"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := listen(t)
			s := serve(t, zap.NewNop(), func(o *server.Options) {
				if name == "webhooks" {
					o.Webhooks = broken
				} else {
					o.Status = broken
				}
			})
			if err := broken.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "serve "+broken.Addr().String()) {
				t.Errorf("%v: want an error that names the listener", err)
			}
		})
	}
}
