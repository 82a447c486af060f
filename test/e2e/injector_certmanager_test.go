//go:build e2e

package e2e_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	issuedSecret = "sidecar-cni-injector-tls"  // by cert-manager
	rootSecret   = "sidecar-cni-injector-root" // of the chart's own issuer
	byChart      = "--set=injector.certificates.mode=certManager"
)

// meshIssuer is an issuer of the user's, by an authority of his.
const meshIssuer = `
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: mesh}
spec: {ca: {secretName: mesh}}
`

// toOwn: our own authority follows a user's.
func (c *certifying) toOwn(t *testing.T) {
	c.apply(t, "upgrade", "--set=injector.certificates.mode=own", "--wait", "--timeout=10m")
	c.awaitInjection(t, injectedSpace, true)
	c.awaitStrip(t)
}

// toCertManager: of cert-manager there is nothing before, and certify's authority stays.
func (c *certifying) toCertManager(t *testing.T) {
	c.StartCertManager(t)
	c.whileLoaded(t, func() {
		c.apply(t, "upgrade", byChart, "--wait", "--timeout=10m")
		c.awaitIssued(t)
		c.secret(t)
	})
}

// awaitIssued waits until pods are injected by a certificate of the chart's own issuer.
func (c *certifying) awaitIssued(t *testing.T) {
	t.Helper()
	c.awaitIssuedBy(t, c.certificate(t, rootSecret))
}

// awaitIssuedBy waits until pods are injected by a certificate that cert-manager has issued.
func (c *certifying) awaitIssuedBy(t *testing.T, authority *x509.Certificate) {
	t.Helper()
	c.awaitInjection(t, injectedSpace, true)
	c.awaitStrip(t)
	issued := c.certificate(t, issuedSecret)
	c.awaitServed(t, pair{leaf: issued})
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	if _, err := issued.Verify(x509.VerifyOptions{Roots: roots, DNSName: serviceDNS}); err != nil {
		t.Error(err)
	}
	c.expectTrusted(t)
}

// renewed: no pod is refused while the certificate is renewed in either way.
func (c *certifying) renewed(t *testing.T) {
	c.whileLoaded(t, func() {
		c.awaitRenewed(t, issuedSecret, func() {
			c.Kubectl(t, "--namespace="+home, "delete", "secret", issuedSecret)
		})
		c.awaitServed(t, pair{leaf: c.certificate(t, issuedSecret)})
		c.expectTrusted(t)
		c.renew(t, "sidecar-cni-injector", issuedSecret)
		c.awaitServed(t, pair{leaf: c.certificate(t, issuedSecret)})
		c.expectTrusted(t)
	})
	c.expectNoRestart(t)
}

// authorityRenewed: certificates of the old authority are good for the new one, so that it does not
// matter who learns of it first.
func (c *certifying) authorityRenewed(t *testing.T) {
	c.whileLoaded(t, func() {
		issued := c.certificate(t, issuedSecret)
		c.renew(t, "sidecar-cni-injector-root", rootSecret)
		roots := x509.NewCertPool()
		roots.AddCert(c.certificate(t, rootSecret))
		if _, err := issued.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
			t.Errorf("a certificate of the old authority: %v", err)
		}
		c.renew(t, "sidecar-cni-injector", issuedSecret)
		c.expectTrusted(t) // whether or not they have the new certificate
		c.awaitIssued(t)
	})
	c.expectNoRestart(t)
}

// renew does what `cmctl renew` does.
func (c *certifying) renew(t *testing.T, name, secret string) {
	t.Helper()
	c.awaitRenewed(t, secret, func() {
		c.Kubectl(t, "--namespace="+home, "patch", "certificate", name, "--subresource=status",
			"--type=json", `--patch=[{"op":"add","path":"/status/conditions/-","value":{`+
				`"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"",`+
				`"lastTransitionTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}]`)
	})
}

// awaitRenewed waits until cert-manager has issued a certificate again.
func (c *certifying) awaitRenewed(t *testing.T, secret string, begin func()) {
	t.Helper()
	before := c.certificate(t, secret)
	begin()
	c.Await(t, "another certificate in "+secret, func(ctx context.Context) error {
		s, err := c.Client().CoreV1().Secrets(home).Get(ctx, secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now, err := parse(s.Data[corev1.TLSCertKey])
		if err == nil && now.Equal(before) {
			err = errors.New("it is the same")
		}
		return err
	})
}

// uninstalled: nothing is left, but the Secrets of all that went before.
func (c *certifying) uninstalled(t *testing.T) {
	c.helmRun(t, "uninstall")
	c.Kubectl(t, "--namespace="+home, "delete", "pods", "--force", "--grace-period=0",
		"--selector=app.kubernetes.io/component=injector") // which would drain for 20 s
	want := []string{"secret/" + caSecret, "secret/" + rootSecret, "secret/" + issuedSecret}
	c.Await(t, "what was installed to go", func(context.Context) error {
		if left := c.ours(t); !slices.Equal(left, want) {
			return fmt.Errorf("there are %v, want %v", left, want)
		}
		return nil
	})
}

// ours are the objects that are named after us, of all kinds but Events.
func (c *certifying) ours(t *testing.T) (found []string) {
	t.Helper()
	kinds := strings.Fields(c.Kubectl(t, "api-resources", "--verbs=list", "--output=name"))
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return strings.HasPrefix(k, "events") })
	for name := range strings.FieldsSeq(c.Kubectl(t, "get", strings.Join(kinds, ","),
		"--all-namespaces", "--output=name")) {
		if strings.Contains(name, "sidecar-cni") {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// otherIssuer installs anew, beside the Secrets that are left.
func (c *certifying) otherIssuer(t *testing.T) {
	c.Kubectl(t, "create", "namespace", "cert-manager")
	_, err := c.Client().CoreV1().Secrets("cert-manager").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mesh"}, Type: corev1.SecretTypeTLS,
		Data: c.first.secret(t)}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, meshIssuer)
	c.byMesh(t, "install")
}

// byMesh has the user's issuer issue the certificate.
func (c *certifying) byMesh(t *testing.T, command string) {
	t.Helper()
	c.apply(t, command, byChart, "--set=injector.certificates.issuer.name=mesh",
		"--set=injector.certificates.issuer.kind=ClusterIssuer", "--wait", "--timeout=10m")
	c.awaitIssuedBy(t, c.first.cert)
}

// issuerChanges: the API server trusts both authorities until all replicas have their certificate.
// Nobody but the kubelet's pace sees to it that they get it later than the API server its
// authority: where a slow cainjector was behind, the issuer is changed again.
func (c *certifying) issuerChanges(t *testing.T) {
	for range 3 {
		if c.issuerChangesInTurn(t) {
			c.expectNoRestart(t)
			return
		}
		t.Log("done again: a replica had its certificate before the API server had the authority")
		c.byMesh(t, "upgrade")
	}
	t.Fatal("each time a replica had its certificate before the API server had the authority")
}

// issuerChangesInTurn reports whether the API server was the first.
func (c *certifying) issuerChangesInTurn(t *testing.T) bool {
	t.Helper()
	l := c.load(t)
	defer l.workers.Wait()
	defer l.stop()
	before := c.certificateChanges(t)
	c.awaitRenewed(t, issuedSecret, func() { c.apply(t, "upgrade", byChart) })
	c.awaitTrust(t, c.certificate(t, issuedSecret))
	if c.certificateChanges(t) != before {
		return false
	}
	c.awaitIssued(t)
	l.expectAllWell(t)
	return true
}

// certificateChanges is how often the replicas say that they have another certificate.
func (c *certifying) certificateChanges(t *testing.T) (sum int) {
	t.Helper()
	for _, p := range c.mustReplicas(t) {
		sum += strings.Count(c.Kubectl(t, "--namespace="+home, "logs", p.Name),
			`"changed certificate"`)
	}
	return sum
}

// awaitTrust waits until the cainjector has the API server trust a certificate. The kubelet takes
// longer to give it to the replicas, unless a test has it hurry.
func (c *certifying) awaitTrust(t *testing.T, issued *x509.Certificate) {
	t.Helper()
	c.Await(t, "the API server to trust the certificate", func(context.Context) error {
		var err error
		for _, name := range []string{injectWith, stripWith} {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(c.bundle(t, name))
			_, untrusted := issued.Verify(x509.VerifyOptions{Roots: roots})
			err = errors.Join(err, untrusted)
		}
		return err
	})
}

// toFiles: caBundle is cert-manager's own, and Helm takes it only if it is told to.
func (c *certifying) toFiles(t *testing.T) {
	options := append(files(t, c.second), "--wait", "--timeout=10m")
	_, err := c.tryHelm("upgrade", append(chart(t, haproxied...), options...)...)
	if err == nil || !strings.Contains(err.Error(), "clientConfig.caBundle") {
		t.Errorf("Helm has no conflict: %v", err)
	}
	c.apply(t, "upgrade", append(options, "--force-conflicts")...)
	c.awaitInjection(t, injectedSpace, true)
	c.awaitStrip(t)
	c.expectTrusted(t)
}

func (c *certifying) dataOf(t *testing.T, secret, key string) []byte {
	t.Helper()
	s, err := c.Client().CoreV1().Secrets(home).Get(t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Data[key]
}

// certificate is the first of those in a Secret.
func (c *certifying) certificate(t *testing.T, secret string) *x509.Certificate {
	t.Helper()
	cert, err := parse(c.dataOf(t, secret, corev1.TLSCertKey))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
