// Package serviceaccount reads what the token of a ServiceAccount says about itself.
//
//	claims, ok := serviceaccount.ReadToken(token)
//
// Be aware: nothing is verified. Who is served with a token, the API server decides.
package serviceaccount

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// Claims are what a token, a JSON Web Token, says about itself. What it does not say is zero.
type Claims struct {
	Subject string `json:"sub"` // see Account
	Issued  Date   `json:"iat"` // by the API server's clock
	Expires Date   `json:"exp"` // by the API server's clock

	// What Kubernetes adds to the claims of any token.
	Kubernetes struct {
		// The account that Subject names.
		ServiceAccount struct {
			UID string `json:"uid"` // another one whenever the account was created anew
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// Date is a time in seconds since 1970, which a token may write with a fraction.
type Date float64

// Time is the zero Time if the token does not say.
func (d Date) Time() time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(d), 0)
}

// ReadToken reports whether a token has the form of a ServiceAccount's. One of another form may be
// good as well.
func ReadToken(token []byte) (Claims, bool) {
	parts := bytes.Split(token, []byte("."))
	if len(parts) != 3 {
		return Claims{}, false
	}
	var c Claims
	payload, err := base64.RawURLEncoding.AppendDecode(nil, parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return Claims{}, false
	}
	return c, true
}

const accountPrefix = "system:serviceaccount:"

// Subject is how tokens name a ServiceAccount.
func Subject(namespace, account string) string { return accountPrefix + namespace + ":" + account }

// Account reads what Subject writes, and reports whether the token is a ServiceAccount's.
func (c Claims) Account() (namespace, account string, ok bool) {
	account, ok = strings.CutPrefix(c.Subject, accountPrefix)
	namespace, account, parted := strings.Cut(account, ":")
	return namespace, account, ok && parted
}
