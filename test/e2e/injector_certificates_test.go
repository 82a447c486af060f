//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/test/cluster"
)

const (
	tlsSecret  = "webhooks" // that a user keeps
	tlsDir     = "/etc/sidecar-cni-injector/tls"
	serviceDNS = injectorName + "." + home + ".svc"
)

// A certifying is a cluster whose webhooks get their certificates from others.
type certifying struct {
	*injecting
	first, second *signer // authorities of a user
}

// TestInjectorCertificates takes an installation through the modes of certificates: those of a
// user, in files; our own; cert-manager's.
func TestInjectorCertificates(t *testing.T) {
	c := &certifying{first: newSigner(t, "first"), second: newSigner(t, "second"),
		injecting: &injecting{toolRig: &toolRig{rig: start(t, cluster.Options{Nodes: oneNode})}}}
	loadProduct(t, c.Node(0))
	c.tellAtTheEnd(t)
	c.labelled(t, injectedSpace, "restricted", "istio-injection=enabled")
	c.labelled(t, strippedSpace, "privileged", "sidecar-cni.io/strip=enabled")
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"files that expired", c.expired},
		{"a certificate that cannot be served", c.unfit},
		{"files by another authority", c.rotated},
		{"an authority that nobody trusts", c.untrusted},
		{"from files to our own", c.toOwn},
		{"from our own to cert-manager", c.toCertManager},
		{"cert-manager renews", c.renewed},
		{"cert-manager renews the authority", c.authorityRenewed},
		{"uninstalled", c.uninstalled},
		{"an issuer of the user's", c.otherIssuer},
		{"another issuer", c.issuerChanges},
		{"from cert-manager to files", c.toFiles},
	} {
		if !t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			tt.f(t)
			t.Logf("after %s", took(began))
		}) {
			return // each begins where the one before ended
		}
	}
}

// files are the chart's values for certificates of a user, whose authorities are trusted.
func files(t *testing.T, trusted ...*signer) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	var bundle []byte
	for _, s := range trusted {
		bundle = append(bundle, s.pem...)
	}
	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--set=injector.certificates.mode=files",
		"--set=injector.certificates.secret=" + tlsSecret,
		"--set-file=injector.certificates.caBundle=" + path}
}

// apply installs or upgrades, with options of Helm beside the values that all have here.
func (c *certifying) apply(t *testing.T, verb string, options ...string) {
	t.Helper()
	c.helmRun(t, verb, append(chart(t, haproxied...), options...)...)
}

// expired: replicas that have nothing to serve are not ready, and say why. They need no restart.
func (c *certifying) expired(t *testing.T) {
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	c.write(t, c.first.issue(t, serviceDNS, past))
	c.apply(t, "install", files(t, c.first)...)
	says := "not ready: get certificate: it expired at " + past.UTC().Format(time.RFC3339)
	c.awaitEach(t, says, func(ctx context.Context, p *corev1.Pod) error {
		if said := c.readyzOf(ctx, p); !strings.Contains(said, says) {
			return fmt.Errorf("%s says %q", p.Name, said)
		}
		return nil
	})
	c.renewFiles(t, c.first.issue(t, serviceDNS, nextYear()))
	c.AwaitRollout(t, home, "deployment/"+injectorName)
	c.awaitInjection(t, injectedSpace, true)
	c.expectNoRestart(t)
}

// unfit: the certificate in use stays, and the log says why.
func (c *certifying) unfit(t *testing.T) {
	good := c.first.issue(t, serviceDNS, nextYear())
	c.renewFiles(t, good)
	strange := c.first.issue(t, serviceDNS, nextYear())
	strange.key = c.first.issue(t, serviceDNS, nextYear()).key
	for says, bad := range map[string]pair{
		"private key does not match public key": strange,
		"certificate is valid for other.example, not " + serviceDNS: c.first.issue(t,
			"other.example", nextYear()),
	} {
		c.write(t, bad)
		c.awaitEach(t, says, func(ctx context.Context, p *corev1.Pod) error {
			log, err := c.Client().CoreV1().Pods(home).GetLogs(p.Name, &corev1.PodLogOptions{}).
				DoRaw(ctx)
			if err == nil && !containsAll(string(log), []string{"refused certificate", says,
				tlsDir + "/tls.crt"}) {
				err = fmt.Errorf("the log of %s is\n%s", p.Name, log)
			}
			return err
		})
		c.awaitServed(t, good)
		if said := c.readyzOf(t.Context(), &c.mustReplicas(t)[0]); said != "ready" {
			t.Errorf("it says %q", said)
		}
	}
	c.renewFiles(t, c.first.issue(t, serviceDNS, nextYear()))
}

// rotated: both authorities are trusted before the certificate changes, and after it only one. No
// replica is replaced, and no pod is refused.
func (c *certifying) rotated(t *testing.T) {
	replicas := podNames(c.mustReplicas(t))
	c.whileLoaded(t, func() {
		c.apply(t, "upgrade", files(t, c.first, c.second)...)
		c.renewFiles(t, c.second.issue(t, serviceDNS, nextYear()))
		c.expectTrusted(t)
		c.apply(t, "upgrade", files(t, c.second)...)
		c.expectTrusted(t)
	})
	c.expectNoRestart(t)
	if now := podNames(c.mustReplicas(t)); now != replicas {
		t.Errorf("the replicas are %s, and were %s", now, replicas)
	}
}

// untrusted: who creates a pod is told. Be aware that the API server goes on asking by connections
// that it has, and that it finds those of an authority again which it has trusted before.
func (c *certifying) untrusted(t *testing.T) {
	c.apply(t, "upgrade", files(t, newSigner(t, "third"))...)
	c.Await(t, "a refusal", func(ctx context.Context) error {
		_, err := c.admit(ctx, newPod(injectedSpace, "asks"))
		if err == nil {
			return errors.New("the pod was admitted")
		}
		if containsAll(err.Error(), []string{injectHook,
			"certificate signed by unknown authority"}) {
			return nil
		}
		return err
	})
	c.apply(t, "upgrade", files(t, c.second)...)
	c.awaitInjection(t, injectedSpace, true)
	c.awaitStrip(t)
}

// whileLoaded has pods created, dry, while something changes, and holds that all were injected.
func (c *certifying) whileLoaded(t *testing.T, change func()) {
	t.Helper()
	l := c.load(t)
	defer l.workers.Wait()
	defer l.stop()
	change()
	l.expectAllWell(t)
}

// write writes the user's Secret.
func (c *certifying) write(t *testing.T, p pair) {
	t.Helper()
	secrets := c.Client().CoreV1().Secrets(home)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tlsSecret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: p.cert, corev1.TLSPrivateKeyKey: p.key}}
	_, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(t.Context(), s, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// renewFiles writes the user's Secret, and waits until all replicas serve what is in it.
func (c *certifying) renewFiles(t *testing.T, p pair) {
	t.Helper()
	c.write(t, p)
	c.awaitServed(t, p)
}

func (c *certifying) awaitServed(t *testing.T, p pair) {
	t.Helper()
	c.awaitEach(t, "the certificate in the Secret", func(ctx context.Context, r *corev1.Pod) error {
		leaf, err := c.served(ctx, r)
		if err == nil && !leaf.Equal(p.leaf) {
			err = fmt.Errorf("%s serves one by %s, valid until %s", r.Name, leaf.Issuer,
				leaf.NotAfter)
		}
		return err
	})
}

// served returns the certificate that a replica shows.
func (c *certifying) served(ctx context.Context, replica *corev1.Pod) (*x509.Certificate, error) {
	conn, err := c.Config().Dial(ctx, "tcp", net.JoinHostPort(replica.Status.PodIP, "9443"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{ServerName: serviceDNS, InsecureSkipVerify: true})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

// expectTrusted holds that a connection which the API server would make now comes about: those that
// it has say nothing of the certificates in use.
func (c *certifying) expectTrusted(t *testing.T) {
	t.Helper()
	for _, name := range []string{injectWith, stripWith} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.bundle(t, name))
		for _, p := range c.mustReplicas(t) {
			if err := c.handshake(t.Context(), &p, roots); err != nil {
				t.Errorf("%s does not trust %s: %v", name, p.Name, err)
			}
		}
	}
}

// awaitEach waits until each of two replicas is as wanted. Meanwhile it has the kubelet look at
// their volumes, which it does when a pod changes, and otherwise within a minute or two.
func (c *certifying) awaitEach(t *testing.T, what string,
	wanted func(context.Context, *corev1.Pod) error) {
	t.Helper()
	c.Await(t, what, func(ctx context.Context) error {
		all, err := c.replicas(ctx)
		if err == nil && len(all) != 2 {
			err = errors.New("the replicas are " + podNames(all))
		}
		for i := range all {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/second":"%d"}}}`,
				time.Now().Unix())
			_, patched := c.Client().CoreV1().Pods(home).Patch(ctx, all[i].Name,
				types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			err = errors.Join(err, patched, wanted(ctx, &all[i]))
		}
		return err
	})
}

// readyzOf is what a replica says when it is asked whether it is ready.
func (c *certifying) readyzOf(ctx context.Context, replica *corev1.Pod) string {
	said, err := c.Client().CoreV1().Pods(home).ProxyGet("http", replica.Name, "9467", "readyz",
		nil).DoRaw(ctx)
	if len(said) == 0 && err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(said))
}

func (c *certifying) expectNoRestart(t *testing.T) {
	t.Helper()
	for _, p := range c.mustReplicas(t) {
		if slices.ContainsFunc(p.Status.ContainerStatuses,
			func(s corev1.ContainerStatus) bool { return s.RestartCount > 0 }) {
			t.Errorf("%s was restarted", p.Name)
		}
	}
}
