package podsource

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/serviceaccount"
)

// A credential is what the API server is shown and where it is kept, to be named when it does not
// do.
type credential struct {
	kubeconfig  string
	where       string
	token       string
	certificate *x509.Certificate // shown instead of a token
}

// String says who asks, with what, and whether that has run out.
func (c credential) String() string {
	who, until := c.claims()
	words := c.where
	if who != "" {
		words = who + ", " + words
	}
	if !until.IsZero() && time.Now().After(until) {
		words += " (expired " + until.UTC().Format(time.RFC3339) + ")"
	}
	return words + ", kubeconfig " + c.kubeconfig
}

// refusedRemedy is what to do about a credential that the API server does not know. A token that
// has not run out is refused when its account was deleted.
func (c credential) refusedRemedy() string {
	if who, until := c.claims(); who == "" || time.Now().After(until) {
		return credentialRemedy
	}
	return accountRemedy
}

// holder is who asks, as far as that is known.
func (c credential) holder() string {
	if who, _ := c.claims(); who != "" {
		return who
	}
	return "the holder of " + c.where
}

// claims reads, without believing it, whom the credential says it is for and until when.
// ServiceAccount tokens are JSON Web Tokens; of another token nothing is known.
func (c credential) claims() (who string, until time.Time) {
	if c.certificate != nil {
		return fmt.Sprintf("user %q", brief(c.certificate.Subject.CommonName)),
			c.certificate.NotAfter
	}
	said, ok := serviceaccount.ReadToken([]byte(c.token))
	if !ok {
		return "", time.Time{}
	}
	if namespace, account, ok := said.Account(); ok {
		// what kubectl calls it
		return fmt.Sprintf("serviceaccount %s/%s", brief(namespace), brief(account)),
			said.Expires.Time()
	}
	return fmt.Sprintf("user %q", brief(said.Subject)), said.Expires.Time()
}
