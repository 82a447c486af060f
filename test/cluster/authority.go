package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// An authority signs who is who in a cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// A pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t), certificate: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "cluster"},
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	der := a.sign(t, a.certificate, a.key.Public())
	var err error
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = encodePEM("CERTIFICATE", der)
	return a
}

func (a *authority) sign(t testing.TB, template *x509.Certificate, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// client makes credentials of a user.
func (a *authority) client(t testing.TB, user string, groups ...string) pair {
	t.Helper()
	return a.issue(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) server(t testing.TB, addresses []net.IP, names ...string) pair {
	t.Helper()
	return a.issue(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: addresses,
		DNSNames:    names,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) issue(t testing.TB, template *x509.Certificate) pair {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, a.certificate.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key := newKey(t)
	return pair{encodePEM("CERTIFICATE", a.sign(t, template, key.Public())), encodeKey(t, key)}
}

// kubeconfig is for programs that present themselves by a certificate.
func (a *authority) kubeconfig(t testing.TB, server string, p pair) []byte {
	t.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"cluster": {Server: server,
			CertificateAuthorityData: a.pem}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"user": {ClientCertificateData: p.certificate, ClientKeyData: p.key}},
		Contexts: map[string]*clientcmdapi.Context{"cluster": {Cluster: "cluster",
			AuthInfo: "user"}},
		CurrentContext: "cluster",
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encodeKey(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encodePEM("EC PRIVATE KEY", der)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
