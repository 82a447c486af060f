// Package apiserver is an API server for tests. It keeps pods, nodes, Events, runtime classes,
// ConfigMaps, Secrets and MutatingWebhookConfigurations, wants a token, and fails in every way that
// is asked for, in the wire format of the real one: TLS, Status objects, JSON and protobuf, lists
// and watches.
//
//	api := apiserver.Start(t)
//	api.Put(pod)
//	run(plugin, "kubeconfig", api.Kubeconfig())
//
// Beside the kubeconfig lie the files that it names, TokenFile and CAFile, for tests to spoil.
//
// It is not envtest, which starts a real kube-apiserver and etcd: those are binaries to be
// downloaded, take seconds to start where this takes milliseconds, and do not fail on demand (a
// watch that breaks off, a token that expires, an answer that never ends, a history that is gone),
// which is most of what is tested here. Whether the real one behaves as this one claims is what
// test/e2e and the cluster's tests in deployments see: they have a real one.
//
// Be aware:
//   - Objects are neither completed nor validated, but where a client could come to rely on it.
//   - Lists come in pages if a limit asks for them, and whole if they are asked for at version 0,
//     as the real server does for what is in its watch cache. The pages are not of one moment: what
//     changes meanwhile may be in one of them.
//   - Patches are JSON patches and merge patches; strategic ones are answered with 415.
package apiserver

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/test/netns"
)

// Server is an API server.
type Server struct {
	folder    string
	address   string
	authority *authority
	wire      *wire // nil: clients dial the address

	mu                            sync.Mutex
	pods                          *collection
	nodes                         *collection
	events                        *collection
	classes                       *collection // of runtimes
	configMaps, secrets, webhooks *collection
	history                       history
	budgets                       map[string]bool // pods that a PodDisruptionBudget protects
	streams                       bool            // whether watches begin with a list if asked to
	dropped                       chan struct{}   // closed: running watches end
	token                         string
	fault                         Fault
	requests                      int
}

// A Fault stands before the server's own answers.
type Fault func(next http.Handler) http.Handler

// Account is who the server's first token is for.
const Account = "system:serviceaccount:kube-system:sidecar-cni-plugin"

// Start serves on a port of the loopback interface.
func Start(t testing.TB) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Serve(t, l)
}

// StartIn serves on a port of the loopback interface of a namespace, which has to be up.
func StartIn(t testing.TB, ns *netns.NS) *Server {
	t.Helper()
	var s *Server
	ns.Do(t, func() { s = Start(t) }) // a socket stays where it was made
	return s
}

// Serve serves on l, until the test ends.
func Serve(t testing.TB, l net.Listener) *Server {
	t.Helper()
	authority := newAuthority(t)
	s := &Server{
		folder: t.TempDir(), address: l.Addr().String(), authority: authority,
		pods:       newCollection(corev1.SchemeGroupVersion, "pods", "Pod"),
		nodes:      newCollection(corev1.SchemeGroupVersion, "nodes", "Node"),
		events:     newCollection(corev1.SchemeGroupVersion, "events", "Event"),
		classes:    newCollection(nodev1.SchemeGroupVersion, "runtimeclasses", "RuntimeClass"),
		configMaps: newCollection(corev1.SchemeGroupVersion, "configmaps", "ConfigMap"),
		secrets:    newCollection(corev1.SchemeGroupVersion, "secrets", "Secret"),
		webhooks: newCollection(admissionv1.SchemeGroupVersion, "mutatingwebhookconfigurations",
			"MutatingWebhookConfiguration"),
		history: history{changed: make(chan struct{})}, dropped: make(chan struct{}),
		budgets: map[string]bool{}, streams: true,
		token: Token(Account, time.Now().Add(time.Hour)),
	}
	write(t, s.CAFile(), authority.pem)
	write(t, s.Kubeconfig(), []byte(fmt.Sprintf(kubeconfig, l.Addr(), serverName)))
	s.RenewTokenFile(t)

	server := &http.Server{
		Handler:   s.broken(s.authenticated(s.routes())),
		TLSConfig: authority.config(t),
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "") // it ends by Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return s
}

const serverName = "kubernetes.default.svc"

const kubeconfig = `apiVersion: v1
kind: Config
current-context: node
contexts:
- name: node
  context: {cluster: here, user: plugin}
clusters:
- name: here
  cluster:
    server: https://%v
    tls-server-name: %s
    certificate-authority: ca.crt
users:
- name: plugin
  user:
    tokenFile: token
`

// Kubeconfig returns the path of a kubeconfig for this server.
func (s *Server) Kubeconfig() string { return filepath.Join(s.folder, "kubeconfig") }

// Config returns what the kubeconfig says, for client-go.
func (s *Server) Config() *rest.Config {
	config := &rest.Config{
		Host:            "https://" + s.address,
		BearerTokenFile: s.TokenFile(),
		TLSClientConfig: rest.TLSClientConfig{ServerName: serverName, CAData: s.authority.pem},
	}
	if s.wire != nil {
		config.Dial = s.wire.dial
	}
	return config
}

// TokenFile returns the path of the token that the kubeconfig names.
func (s *Server) TokenFile() string { return filepath.Join(s.folder, "token") }

// CAFile returns the path of the CA that the kubeconfig names.
func (s *Server) CAFile() string { return filepath.Join(s.folder, "ca.crt") }

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ClientCertificate writes a certificate that the server accepts instead of a token, beside the
// kubeconfig.
func (s *Server) ClientCertificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(s.folder, "client.crt"), filepath.Join(s.folder, "client.key")
	cert, key := s.authority.issue(t, "sidecar-cni-plugin", x509.ExtKeyUsageClientAuth)
	write(t, certFile, cert)
	write(t, keyFile, key)
	return certFile, keyFile
}

// Rotate makes the server accept that token only; TokenFile keeps the old one.
func (s *Server) Rotate(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// RenewTokenFile writes the token that the server accepts.
func (s *Server) RenewTokenFile(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	write(t, s.TokenFile(), []byte(s.token+"\n"))
}

// Distrust puts the CA of somebody else into CAFile.
func (s *Server) Distrust(t testing.TB) {
	t.Helper()
	write(t, s.CAFile(), newAuthority(t).pem)
}

// Break puts a fault before all answers. Nil mends it.
func (s *Server) Break(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Requests returns how many there were.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *Server) broken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests++
		handler := next
		if s.fault != nil {
			handler = s.fault(next)
		}
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	})
}

func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		known := r.Header.Get("Authorization") == "Bearer "+s.token || len(r.TLS.VerifiedChains) > 0
		s.mu.Unlock()
		if !known {
			sendError(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
