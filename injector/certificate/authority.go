package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// The keys of the authority's Secret.
const (
	// BundleKey has the certificates, in PEM, of all authorities that are to be trusted: the newest
	// first.
	BundleKey = "ca.crt"
	// CertKey has the certificate of the authority that signs, and PrivateKeyKey its key.
	CertKey       = "tls.crt"
	PrivateKeyKey = "tls.key"
)

const (
	authorityName = "sidecar-cni-injector-ca"
	authorityLife = 10 * 365 * 24 * time.Hour
	servingLife   = 24 * time.Hour
	// clockSkew is how far behind the clock of whoever reads a certificate may be.
	clockSkew = 10 * time.Minute
)

// Authority signs serving certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes an authority that is valid for ten years.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: authorityName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(template, &Authority{template, key}, key.Public())
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	return &Authority{cert, key}, nil
}

// ParseAuthority reads an authority from its certificate and key, in PEM.
func ParseAuthority(cert, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, fmt.Errorf("the key, a %T, cannot sign", pair.PrivateKey)
	case !pair.Leaf.IsCA:
		return nil, errors.New("the certificate is not an authority's (CA:TRUE)")
	}
	return &Authority{pair.Leaf, signer}, nil
}

// Certificate returns the authority's own.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Key returns the authority's key, in PEM.
func (a *Authority) Key() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("write key of authority: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// issue makes a serving certificate, with a key of its own.
func (a *Authority) issue(names []string, now time.Time) (*tls.Certificate, error) {
	if !now.Before(a.cert.NotAfter) {
		return nil, fmt.Errorf("make certificate: the authority expired at %s",
			a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	end := now.Add(servingLife)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	leaf, err := sign(&x509.Certificate{
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              names,
	}, a, key.Public())
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// sign makes a certificate of a template. Its serial number is random.
func sign(template *x509.Certificate, by *Authority,
	public crypto.PublicKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, public, by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Bundle writes certificates in PEM.
func Bundle(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out,
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return out
}

// ParseBundle reads certificates in PEM. It is an error if the data has anything else, or no
// certificate.
func ParseBundle(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("want certificates in PEM (BEGIN CERTIFICATE)")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("it is empty; want certificates in PEM")
	}
	return certs, nil
}
