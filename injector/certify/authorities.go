package certify

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/certificate"
)

// nextKey of the Secret has the key of an authority that does not sign yet. Its certificate is the
// first of the bundle.
const nextKey = "next.key"

// state is what the Secret says.
type state struct {
	secret *corev1.Secret
	trust  []*x509.Certificate    // the newest first
	signer *certificate.Authority // nil: none before next
	next   *certificate.Authority // nil: no change is under way
}

func (s *state) bundle() []byte { return certificate.Bundle(s.trust...) }

// A spoiledError is about a Secret that trying again does not help.
type spoiledError struct {
	secret string
	cause  error
}

func (e *spoiledError) Error() string {
	return fmt.Sprintf("read secret %s: %v; it is no authority of ours: delete it, and run "+
		"certify again, as helm upgrade does, which makes another", e.secret, e.cause)
}

func (e *spoiledError) Unwrap() error { return e.cause }

// authorities returns those of the Secret. It makes them, if there are none; begins to replace
// them, if it is time; and drops those that nobody needs any more. Others are who is trusted today
// by the webhook configurations.
func (r run) authorities(ctx context.Context, others []*x509.Certificate) (*state, error) {
	s, err := r.read(ctx)
	now := time.Now()
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, others)
	case err != nil:
		return nil, err
	case s.next != nil:
		return s, nil
	case s.signer.Certificate().NotAfter.Sub(now) < renewBefore,
		now.Before(s.signer.Certificate().NotBefore): // made by a clock that was ahead
		if err := s.begin(unexpired(s.trust, now)); err != nil {
			return nil, err
		}
		return s, r.write(ctx, s)
	}
	kept := []*x509.Certificate{s.signer.Certificate()}
	if now.Sub(s.signer.Certificate().NotBefore) < trustAfter {
		kept = merge(kept, unexpired(s.trust, now))
	}
	if slices.EqualFunc(kept, s.trust, (*x509.Certificate).Equal) {
		return s, nil
	}
	s.trust = kept
	return s, r.write(ctx, s)
}

// begin adds an authority that does not sign yet.
func (s *state) begin(others []*x509.Certificate) error {
	next, err := certificate.NewAuthority(time.Now())
	if err != nil {
		return err
	}
	s.next, s.trust = next, merge([]*x509.Certificate{next.Certificate()}, others)
	return nil
}

// create makes the Secret. Where webhook configurations trust somebody already, who may be serving,
// the new authority does not sign before it is trusted, too.
func (r run) create(ctx context.Context, others []*x509.Certificate) (*state, error) {
	s := &state{secret: &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.of.Secret.Namespace, Name: r.of.Secret.Name,
			Labels: map[string]string{
				"app.kubernetes.io/name":       "sidecar-cni",
				"app.kubernetes.io/component":  "injector",
				"app.kubernetes.io/managed-by": manager,
			},
		},
		Type: corev1.SecretTypeOpaque,
	}}
	if err := s.begin(unexpired(others, time.Now())); err != nil {
		return nil, err
	}
	if len(s.trust) == 1 {
		s.signer, s.next = s.next, nil
	}
	if err := s.fill(); err != nil {
		return nil, err
	}
	created := &corev1.Secret{}
	err := r.secrets.Post().Namespace(r.of.Secret.Namespace).Resource("secrets").
		Body(s.secret).Do(ctx).Into(created)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("secret %v: %w", r.of.Secret, errAgain)
	case err != nil:
		return nil, fmt.Errorf("create secret %v: %w", r.of.Secret, err)
	}
	r.log.Info("created authority", zap.Stringer("secret", r.of.Secret))
	s.secret = created
	return s, nil
}

// fill puts the state into its Secret.
func (s *state) fill() error {
	data := map[string][]byte{certificate.BundleKey: s.bundle()}
	if s.signer != nil {
		key, err := s.signer.Key()
		if err != nil {
			return err
		}
		data[certificate.CertKey] = certificate.Bundle(s.signer.Certificate())
		data[certificate.PrivateKeyKey] = key
	}
	if s.next != nil {
		key, err := s.next.Key()
		if err != nil {
			return err
		}
		data[nextKey] = key
	}
	s.secret.Data = data
	return nil
}

// write replaces the Secret, if nobody has changed it since it was read.
func (r run) write(ctx context.Context, s *state) error {
	if err := s.fill(); err != nil {
		return err
	}
	written := &corev1.Secret{}
	err := r.secrets.Put().Namespace(r.of.Secret.Namespace).Resource("secrets").
		Name(r.of.Secret.Name).Body(s.secret).Do(ctx).Into(written)
	if err != nil {
		return fmt.Errorf("update secret %v: %w", r.of.Secret, err)
	}
	s.secret = written
	return nil
}

// read reads the Secret.
func (r run) read(ctx context.Context) (*state, error) {
	s := &state{secret: &corev1.Secret{}}
	err := r.secrets.Get().Namespace(r.of.Secret.Namespace).Resource("secrets").
		Name(r.of.Secret.Name).Do(ctx).Into(s.secret)
	if err != nil {
		return nil, fmt.Errorf("read secret %v: %w", r.of.Secret, err)
	}
	if err := s.parse(); err != nil {
		return nil, &spoiledError{r.of.Secret.String(), err}
	}
	return s, nil
}

func (s *state) parse() (err error) {
	data := s.secret.Data
	if s.trust, err = certificate.ParseBundle(data[certificate.BundleKey]); err != nil {
		return fmt.Errorf("key %s: %w", certificate.BundleKey, err)
	}
	if key, ok := data[nextKey]; ok {
		first := certificate.Bundle(s.trust[0])
		if s.next, err = certificate.ParseAuthority(first, key); err != nil {
			return fmt.Errorf("keys %s and %s: %w", certificate.BundleKey, nextKey, err)
		}
	}
	if s.next != nil && data[certificate.CertKey] == nil {
		return nil
	}
	s.signer, err = certificate.ParseAuthority(data[certificate.CertKey],
		data[certificate.PrivateKeyKey])
	if err != nil {
		return fmt.Errorf("keys %s and %s: %w", certificate.CertKey, certificate.PrivateKeyKey,
			err)
	}
	if !slices.ContainsFunc(s.trust, s.signer.Certificate().Equal) {
		return errors.New("key " + certificate.BundleKey + ": it has not the certificate of " +
			certificate.CertKey)
	}
	return nil
}

// unexpired returns the certificates that are still valid.
func unexpired(certs []*x509.Certificate, now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(certs),
		func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}

// merge appends those certificates that are not there.
func merge(certs, more []*x509.Certificate) []*x509.Certificate {
	for _, c := range more {
		if !slices.ContainsFunc(certs, c.Equal) {
			certs = append(certs, c)
		}
	}
	return certs
}
