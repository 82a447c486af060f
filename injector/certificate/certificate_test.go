package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/daemon/follow"
	"github.com/sidecar-cni/sidecar-cni/test/apiserver"
)

const service = "injector.mesh.svc"

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// secret is the authority's, who signs, beside others that are trusted.
func secret(t *testing.T, a *Authority, others ...*Authority) *corev1.Secret {
	t.Helper()
	key, err := a.Key()
	if err != nil {
		t.Fatal(err)
	}
	certs := []*x509.Certificate{a.cert}
	for _, other := range others {
		certs = append(certs, other.cert)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "ca"},
		Data: map[string][]byte{BundleKey: Bundle(certs...), CertKey: Bundle(a.cert),
			PrivateKeyKey: key},
	}
}

// start runs what is served until the test ends.
func start(t *testing.T, o Options) *Serving {
	t.Helper()
	o.Metrics, o.Log = prometheus.NewPedanticRegistry(), zap.NewNop()
	s := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func fromSecret(api *apiserver.Server) Options {
	return Options{Secret: types.NamespacedName{Namespace: "mesh", Name: "ca"},
		Client: api.Config(), Names: []string{service}}
}

// A visit is how a client comes: whom it trusts, whom it wants, by which clock.
type visit struct {
	roots []byte
	name  string
	clock func() time.Time
}

// connect shakes hands as an API server does. It returns the connection's two ends, or the client's
// error.
func connect(t *testing.T, s *Serving, v visit) (client, server *tls.Conn, err error) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(v.roots) {
		t.Fatal("no roots")
	}
	ours, theirs := net.Pipe()
	server = tls.Server(theirs,
		&tls.Config{GetCertificate: s.Get, MinVersion: tls.VersionTLS12,
			SessionTicketsDisabled: true}) // nobody reads them from a pipe
	client = tls.Client(ours, &tls.Config{RootCAs: pool, ServerName: v.name, Time: v.clock,
		MinVersion: tls.VersionTLS12})
	// In a pipe, who refuses and who still writes would wait for each other.
	for _, end := range []net.Conn{ours, theirs} {
		t.Cleanup(func() { end.Close() })
	}
	bound := func(end time.Time) { // a pipe takes every deadline
		_, _ = ours.SetDeadline(end), theirs.SetDeadline(end)
	}
	bound(time.Now().Add(time.Second))
	defer bound(time.Time{})
	done := make(chan error, 1)
	go func() { done <- server.HandshakeContext(t.Context()) }()
	err = client.HandshakeContext(t.Context())
	served := <-done
	if err == nil {
		err = served
	}
	return client, server, err
}

// leaf is the serial number of what is served to a client, or the error.
func leaf(t *testing.T, s *Serving, roots []byte) string {
	t.Helper()
	client, _, err := connect(t, s, visit{roots, service, nil})
	if err != nil {
		return err.Error()
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestWhomClientsTrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, a := apiserver.InMemory(t), newAuthority(t)
		api.PutObject(secret(t, a))
		s := start(t, fromSecret(api))
		time.Sleep(time.Second)
		if err := s.Ready(); err != nil {
			t.Fatal(err)
		}
		roots := Bundle(a.cert)
		at := func(d time.Duration) func() time.Time {
			return func() time.Time { return time.Now().Add(d) }
		}
		for title, test := range map[string]struct {
			visit
			want string // part of the error, "" for none
		}{
			"the authority's":                    {visit{roots, service, nil}, ""},
			"beside others":                      {visit{append(Bundle(newAuthority(t).cert), roots...), service, nil}, ""},
			"another's":                          {visit{Bundle(newAuthority(t).cert), service, nil}, "unknown authority"},
			"of another name":                    {visit{roots, "injector.other.svc", nil}, "valid for " + service},
			"by a clock that is somewhat behind": {visit{roots, service, at(-5 * time.Minute)}, ""},
			"by a clock that is a day ahead":     {visit{roots, service, at(25 * time.Hour)}, "expired"},
		} {
			_, _, err := connect(t, s, test.visit)
			if (err == nil) != (test.want == "") ||
				!strings.Contains(fmt.Sprint(err), test.want) && test.want != "" {
				t.Errorf("%s: error %v, want %q", title, err, test.want)
			}
		}
		expiry := testutil.ToFloat64(gauge(s))
		if want := float64(time.Now().Add(24 * time.Hour).Unix()); expiry > want ||
			expiry < want-60 {
			t.Errorf("expiry %v, want about %v", expiry, want)
		}
	})
}

// gauge collects what s says of its expiry.
func gauge(s *Serving) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "g"}, s.expiry)
}

// For three days, every hour somebody new comes, and somebody who came first stays.
func TestCertificatesRotateUnderConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, a := apiserver.InMemory(t), newAuthority(t)
		api.PutObject(secret(t, a))
		s := start(t, fromSecret(api))
		time.Sleep(time.Second)
		roots := Bundle(a.cert)
		client, server, err := connect(t, s, visit{roots, service, nil})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for range 72 {
			seen[leaf(t, s, roots)] = true
			current, err := s.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(current.Leaf.NotAfter); left < servingLife/4 {
				t.Errorf("%v are left of the certificate in use", left)
			}
			time.Sleep(time.Hour)
		}
		if len(seen) != 5 { // one each 16 h
			t.Errorf("%d certificates in 72 h, want 5", len(seen))
		}
		go func() { _, _ = server.Write([]byte("still here")) }()
		got := make([]byte, len("still here"))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != "still here" {
			t.Errorf("the first connection says %q, %v", got, err)
		}
	})
}

func TestAnAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, older, newer := apiserver.InMemory(t), newAuthority(t), newAuthority(t)
		api.PutObject(secret(t, older, newer))
		s := start(t, fromSecret(api))
		time.Sleep(time.Second)
		both := Bundle(newer.cert, older.cert)
		first := leaf(t, s, Bundle(older.cert))
		again := leaf(t, s, both)
		if first != again {
			t.Errorf("served %s and %s, want one certificate", first, again)
		}
		api.PutObject(secret(t, newer, older))
		time.Sleep(time.Second)
		if got := leaf(t, s, Bundle(newer.cert)); got == first || strings.Contains(got, "x509") {
			t.Errorf("served %s, want another than before, by the newer authority", got)
		}
		if got := leaf(t, s, both); strings.Contains(got, "x509") {
			t.Errorf("who trusts both: %s", got)
		}
	})
}

func TestWhatIsInUseStaysWhileItIsValid(t *testing.T) {
	t.Parallel()
	spoil := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
	}
	for title, test := range map[string]struct {
		spoil func(*corev1.Secret) // nil: it is deleted
		why   string
	}{
		"its Secret is deleted": {nil, "read Secret mesh/ca: not found"},
		"the key is nonsense":   {spoil(PrivateKeyKey, "nonsense"), "keys tls.crt and tls.key"},
		"the certificate is":    {spoil(CertKey, ""), "sidecar-cni-injector certify makes them"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api, a := apiserver.InMemory(t), newAuthority(t)
				good, roots := secret(t, a), Bundle(a.cert)
				s := start(t, fromSecret(api))
				time.Sleep(time.Second)
				if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "not found") {
					t.Errorf("ready before there is a Secret: %v", err)
				}
				if _, err := s.Get(nil); err == nil {
					t.Error("it serves before there is a Secret")
				}
				api.PutObject(good)
				time.Sleep(time.Second)
				first := leaf(t, s, roots)
				if test.spoil == nil {
					api.RemoveObject(good)
				} else {
					bad := good.DeepCopy()
					test.spoil(bad)
					api.PutObject(bad)
				}
				time.Sleep(23 * time.Hour)
				if got := leaf(t, s, roots); got != first {
					t.Errorf("a day later it serves %s, want %s", got, first)
				}
				time.Sleep(2 * time.Hour)
				if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "expired") {
					t.Errorf("after its end it is ready: %v", err)
				}
				if !strings.Contains(fmt.Sprint(s.why), test.why) {
					t.Errorf("it says %v, want %q", s.why, test.why)
				}
				api.PutObject(good)
				time.Sleep(2 * tryAgain)
				if err := s.Ready(); err != nil {
					t.Errorf("when it is back: %v", err)
				}
			})
		})
	}
}

func TestTheLifeOfAnAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		got := []any{time.Until(a.cert.NotAfter).Hours() / 24, a.cert.IsCA,
			time.Since(a.cert.NotBefore)}
		if diff := cmp.Diff([]any{3650.0, true, clockSkew}, got); diff != "" {
			t.Errorf("days, authority, skew (-want +got):\n%s", diff)
		}
		time.Sleep(authorityLife - time.Hour)
		c, err := a.issue([]string{service}, time.Now())
		if err != nil || c.Leaf.NotAfter.After(a.cert.NotAfter) {
			t.Errorf("error %v; a certificate must not live longer than its authority", err)
		}
		time.Sleep(time.Hour)
		if _, err := a.issue([]string{service}, time.Now()); err == nil {
			t.Error("an authority signs that has expired")
		}
	})
}

// A node's clock may be wrong when it boots, and set right later, which no timer notices. The
// certificate is made anew soon then.
func TestAClockThatIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, a := apiserver.InMemory(t), newAuthority(t)
		api.PutObject(secret(t, a))
		o := fromSecret(api)
		object, err := follow.Secret(o.Client, o.Secret, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{secret: object, names: o.Names}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.run(ctx, func() {})
		time.Sleep(time.Second)
		now := time.Now()
		for title, was := range map[string]time.Time{
			"it was ahead":  now.AddDate(1, 0, 0),
			"it was behind": now.AddDate(-20, 0, 0),
		} {
			wrong, _, err := m.get(nil, was)
			if err != nil {
				t.Fatal(err)
			}
			right, _, err := m.get(wrong, now)
			if err == nil {
				err = validNow(right, now)
			}
			if err != nil {
				t.Errorf("%s: %v", title, err)
			}
		}
		o.Metrics, o.Log = prometheus.NewPedanticRegistry(), zap.NewNop()
		if again := New(o).renew(m); again <= 0 || again > time.Minute {
			t.Errorf("the next look is after %v, want one within a minute", again)
		}
	})
}
