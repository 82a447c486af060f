// Package certificate is about whom the API server talks to: our authority, which its webhook
// configurations name, and the certificates that are served.
//
//	serving := certificate.New(certificate.Options{
//		Secret: types.NamespacedName{Namespace: "kube-system", Name: "sidecar-cni-injector-ca"},
//		Client: config, Names: []string{"sidecar-cni-injector.kube-system.svc"},
//		Metrics: registry, Log: log,
//	})
//	go serving.Run(ctx)
//	tlsConfig.GetCertificate = serving.Get
//
// Be aware:
//   - Whoever can read the authority's Secret can make certificates for our webhooks.
//   - Where the Secret or the files are spoiled or gone, the certificate in use stays, as long as
//     it is valid.
package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/daemon/follow"
)

// tryAgain is when a certificate that could not be made or read is tried again, if nothing changes
// before.
const tryAgain = 30 * time.Second

// lookAgain is the longest time between two looks at the certificate. The clock may be set, by
// years when a node has just booted; no timer notices.
const lookAgain = time.Minute

// Options are where certificates come from: our own authority's Secret, by which they are made in
// memory, or files that somebody else keeps fresh.
type Options struct {
	Secret  types.NamespacedName  // of the authority
	Client  *rest.Config          // by which the Secret is read
	Names   []string              // of the Service, each of which a certificate has
	Cert    string                // file, in place of Secret
	Key     string                // file
	Metrics prometheus.Registerer // of its gauge
	Log     *zap.Logger           // of what is served and refused
}

// Serving is the certificate in use. It changes.
type Serving struct {
	of Options

	mu      sync.RWMutex
	current *tls.Certificate
	why     error // why there is none, or no newer one; nil if all is well
}

// New returns one that has no certificate yet.
func New(o Options) *Serving {
	s := &Serving{of: o, why: errors.New("get certificate: nothing was read yet")}
	promauto.With(o.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_cni_injector_certificate_expiry_timestamp_seconds",
		Help: "When the certificate expires by which webhooks are served, in seconds since 1970; " +
			"0 if there is none.",
	}, s.expiry)
	return s
}

func (s *Serving) expiry() float64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.current == nil {
		return 0
	}
	return float64(s.current.Leaf.NotAfter.Unix())
}

// A source makes or reads certificates.
type source interface {
	// run calls changed when there may be another, until ctx ends.
	run(ctx context.Context, changed func())
	// get returns what is to be served now, in place of what is in use, and when to ask again.
	// That is the one in use if nothing has changed.
	get(inUse *tls.Certificate, now time.Time) (*tls.Certificate, time.Duration, error)
}

func (s *Serving) source() (source, error) {
	if s.of.Cert != "" || s.of.Key != "" {
		if s.of.Cert == "" || s.of.Key == "" {
			return nil, errors.New("get certificate: want a file of the certificate and one of " +
				"its key, got one of them")
		}
		return &files{s.of.Cert, s.of.Key, s.of.Names, s.of.Log}, nil
	}
	if len(s.of.Names) == 0 {
		return nil, errors.New("get certificate: want the DNS names of the Service, got none")
	}
	secret, err := follow.Secret(s.of.Client, s.of.Secret, s.of.Log)
	return &memory{secret: secret, names: s.of.Names}, err
}

// Run keeps it fresh until ctx ends. It returns an error if it cannot begin.
func (s *Serving) Run(ctx context.Context) error {
	from, err := s.source()
	if err != nil {
		return err
	}
	changes := follow.NewChanges()
	var following sync.WaitGroup
	following.Go(func() { from.run(ctx, changes.Note) })
	changes.Handle(ctx, func() time.Duration { return s.renew(from) })
	following.Wait()
	return nil
}

// renew brings another certificate into use, if there is one. It returns when to do so again.
func (s *Serving) renew(from source) time.Duration {
	s.mu.RLock()
	inUse, before := s.current, s.why
	s.mu.RUnlock()
	next, again, err := from.get(inUse, time.Now())
	if err == nil {
		err = validNow(next, time.Now())
	}
	s.mu.Lock()
	s.why = err
	if err == nil {
		s.current = next
	}
	s.mu.Unlock()
	switch {
	case err == nil && next != inUse:
		s.of.Log.Info("changed certificate", zap.Time("expiry", next.Leaf.NotAfter),
			zap.String("issuer", next.Leaf.Issuer.String()),
			zap.Strings("names", next.Leaf.DNSNames))
	case errors.Is(err, follow.ErrPending): // follow has logged why
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.of.Log.Error("refused certificate", zap.Error(err), zap.Bool("served", inUse != nil))
	}
	if err != nil {
		return tryAgain
	}
	return min(again, lookAgain)
}

// validNow says what is wrong with the time of a certificate.
func validNow(c *tls.Certificate, now time.Time) error {
	const form = time.RFC3339
	switch {
	case now.After(c.Leaf.NotAfter):
		return fmt.Errorf("get certificate: it expired at %s", c.Leaf.NotAfter.UTC().Format(form))
	case now.Before(c.Leaf.NotBefore):
		return fmt.Errorf("get certificate: it is valid from %s only; are the clocks right?",
			c.Leaf.NotBefore.UTC().Format(form))
	}
	return nil
}

// Get is for tls.Config.GetCertificate. It never waits.
func (s *Serving) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.current == nil {
		return nil, s.why
	}
	if err := validNow(s.current, time.Now()); err != nil {
		return nil, err
	}
	return s.current, nil
}

// Ready says why there is no certificate that can be served; nil if there is one.
func (s *Serving) Ready() error {
	_, err := s.Get(nil)
	return err
}

// memory makes certificates by the authority in a Secret.
type memory struct {
	secret *follow.Object
	names  []string

	// Run's own.
	signer *x509.Certificate // of the authority that signed what is in use
}

func (m *memory) run(ctx context.Context, changed func()) { m.secret.Run(ctx, changed) }

// get makes a certificate at two thirds of the life of the one in use, when another authority
// signs, and when the clock was set back behind the one in use.
func (m *memory) get(inUse *tls.Certificate,
	now time.Time) (*tls.Certificate, time.Duration, error) {
	data, err := m.secret.Data()
	if err != nil {
		return nil, 0, fmt.Errorf("get authority: %w", err)
	}
	authority, err := ParseAuthority(data[CertKey], data[PrivateKeyKey])
	if err != nil {
		return nil, 0, fmt.Errorf("get authority: read %v, keys %s and %s: %w; "+
			"sidecar-cni-injector certify makes them", m.secret, CertKey, PrivateKeyKey, err)
	}
	if inUse != nil && authority.cert.Equal(m.signer) && now.Before(renewal(inUse.Leaf)) &&
		!now.Before(inUse.Leaf.NotBefore) {
		return inUse, renewal(inUse.Leaf).Sub(now), nil
	}
	next, err := authority.issue(m.names, now)
	if err != nil {
		return nil, 0, err
	}
	m.signer = authority.cert
	return next, max(renewal(next.Leaf).Sub(now), time.Second), nil
}

// renewal is when two thirds of a certificate's life are over.
func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// files are a certificate and its key that somebody else writes.
type files struct {
	cert, key string
	names     []string
	log       *zap.Logger
}

func (f *files) run(ctx context.Context, changed func()) {
	follow.Files(ctx, []string{f.cert, f.key}, f.log, changed)
}

func (f *files) get(inUse *tls.Certificate,
	_ time.Time) (*tls.Certificate, time.Duration, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, 0, fmt.Errorf("read certificate from %q and its key from %q: %w", f.cert, f.key,
			err)
	}
	if inUse != nil && slices.EqualFunc(inUse.Certificate, pair.Certificate, bytes.Equal) {
		return inUse, 0, nil
	}
	for _, name := range f.names {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return nil, 0, fmt.Errorf("read certificate from %q: %w", f.cert, err)
		}
	}
	return &pair, 0, nil
}
