package podsource

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
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

// holder is who asks, as far as that can be told.
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
		return fmt.Sprintf("user %q", brief(c.certificate.Subject.CommonName)), c.certificate.NotAfter
	}
	parts := strings.Split(c.token, ".")
	if len(parts) != 3 {
		return "", time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", time.Time{}
	}
	var claims struct {
		Subject string  `json:"sub"`
		Expires float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", time.Time{}
	}
	if claims.Expires > 0 {
		until = time.Unix(int64(claims.Expires), 0)
	}
	return subject(claims.Subject), until
}

// subject turns "system:serviceaccount:a:b" into what kubectl calls it.
func subject(name string) string {
	account, ok := strings.CutPrefix(name, "system:serviceaccount:")
	namespace, account, ok2 := strings.Cut(account, ":")
	if ok && ok2 {
		return fmt.Sprintf("serviceaccount %s/%s", brief(namespace), brief(account))
	}
	return fmt.Sprintf("user %q", brief(name))
}
