//go:build e2e

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"
)

// A signer is an authority of a user.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// A pair is a certificate and its key, in PEM.
type pair struct {
	cert, key []byte
	leaf      *x509.Certificate
}

func nextYear() time.Time { return time.Now().AddDate(1, 0, 0) }

func newSigner(t *testing.T, name string) *signer {
	t.Helper()
	s := &signer{cert: &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: nextYear()}}
	p, key := s.sign(t, s.cert)
	s.cert, s.key, s.pem = p.leaf, key, p.cert
	return s
}

// issue makes a certificate of a server.
func (s *signer) issue(t *testing.T, name string, expiry time.Time) pair {
	t.Helper()
	p, _ := s.sign(t, &x509.Certificate{DNSNames: []string{name}, NotAfter: expiry,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return p
}

// secret is the content of a Secret for an issuer of cert-manager's.
func (s *signer) secret(t *testing.T) map[string][]byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"tls.crt": s.pem, "tls.key": encode("PRIVATE KEY", der)}
}

// parse reads the first certificate of some in PEM.
func parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// sign signs what a signer without a key makes of itself by the new key.
func (s *signer) sign(t *testing.T, template *x509.Certificate) (pair, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by := s.key
	if by == nil {
		by = key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().AddDate(0, 0, -1)
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{leaf: leaf, cert: encode("CERTIFICATE", der), key: encode("PRIVATE KEY", encoded)},
		key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
