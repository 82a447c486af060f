package certificate

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
)

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after a minute there is still not %s", what)
		}
	}
}

// pair is a certificate by an authority, and its key, in PEM.
func pair(t *testing.T, a *Authority, now time.Time) (cert, key []byte, serial string) {
	t.Helper()
	return pairFor(t, a, service, now)
}

func pairFor(t *testing.T, a *Authority, name string,
	now time.Time) (cert, key []byte, serial string) {
	t.Helper()
	c, err := a.issue([]string{name}, now)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return Bundle(c.Leaf), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		c.Leaf.SerialNumber.String()
}

func TestCertificatesInFiles(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), newAuthority(t)
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	s := start(t, Options{Cert: certFile, Key: keyFile, Names: []string{service}})
	roots := Bundle(a.cert)
	eventually(t, "a reason", func() bool {
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), certFile)
	})
	cert, key, first := pair(t, a, time.Now())
	write("tls.crt", cert)
	write("tls.key", key)
	eventually(t, "the first certificate", func() bool { return s.Ready() == nil })
	if got := leaf(t, s, roots); got != first {
		t.Errorf("served %s, want %s", got, first)
	}

	expired, oldKey, _ := pair(t, a, time.Now().Add(-48*time.Hour))
	write("tls.crt", expired) // its key is not there yet: the two do not match
	eventually(t, "a refusal", func() bool { return strings.Contains(why(s), "does not match") })
	write("tls.key", oldKey)
	eventually(t, "another refusal", func() bool { return strings.Contains(why(s), "expired") })
	if got := leaf(t, s, roots); got != first {
		t.Errorf("served %s, want the first, %s", got, first)
	}

	strange, strangeKey, _ := pairFor(t, a, "other.example", time.Now())
	write("tls.crt", strange)
	write("tls.key", strangeKey)
	eventually(t, "a refusal of a name", func() bool {
		return strings.Contains(why(s), "is valid for other.example, not "+service)
	})
	if got := leaf(t, s, roots); got != first {
		t.Errorf("served %s, want the first, %s", got, first)
	}

	next, nextKey, second := pair(t, a, time.Now())
	write("tls.crt", next)
	write("tls.key", nextKey)
	eventually(t, "the second certificate", func() bool { return leaf(t, s, roots) == second })
	if why(s) != "" {
		t.Errorf("it says %s", why(s))
	}
}

func why(s *Serving) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.why == nil {
		return ""
	}
	return s.why.Error()
}

func TestOptionsThatAreWrong(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"got one of them": {Cert: "a"}, "DNS names of the Service": {},
	} {
		o.Metrics, o.Log = prometheus.NewRegistry(), zap.NewNop()
		if err := New(o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	New(Options{Metrics: reg})
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("error %v, problems %+v", err, problems)
	}
}

func TestAuthoritiesThatAreNone(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	key, err := a.Key()
	if err != nil {
		t.Fatal(err)
	}
	cert, certKey, _ := pair(t, a, time.Now())
	for want, give := range map[string][2][]byte{
		"does not match":               {Bundle(other.cert), key},
		"not an authority's (CA:TRUE)": {cert, certKey},
		"failed to find any PEM data":  {nil, key},
	} {
		if _, err := ParseAuthority(give[0], give[1]); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	again, err := ParseAuthority(Bundle(a.cert), key)
	if err != nil || !again.Certificate().Equal(a.cert) {
		t.Errorf("what was written is read as %v, %v", again, err)
	}
	for _, text := range []string{"", "nonsense", string(key),
		"-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n",
		string(Bundle(a.cert)) + "rest"} {
		if certs, err := ParseBundle([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, certs)
		}
	}
	if certs, err := ParseBundle(Bundle(a.cert, other.cert)); err != nil || len(certs) != 2 ||
		!certs[1].Equal(other.cert) {
		t.Errorf("a bundle of two is read as %v, %v", certs, err)
	}
}
