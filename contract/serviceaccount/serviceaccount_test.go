package serviceaccount_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/serviceaccount"
)

func TestWhenATokenExpires(t *testing.T) {
	t.Parallel()
	token := func(claims any) string {
		data, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		return "e30." + base64.RawURLEncoding.EncodeToString(data) + ".c2ln"
	}
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		token string
		want  time.Time
	}{
		"a service account's": {token(map[string]any{"exp": at.Unix(), "aud": []string{"x"}}),
			at},
		"with a line's end":     {token(map[string]any{"exp": at.Unix()}) + "\n", at},
		"with a fraction":       {token(map[string]any{"exp": float64(at.Unix()) + 0.5}), at},
		"without an end":        {token(map[string]any{"sub": "x"}), time.Time{}},
		"with a word":           {token(map[string]any{"exp": "never"}), time.Time{}},
		"before 1970":           {token(map[string]any{"exp": -1}), time.Time{}},
		"no object":             {token(7), time.Time{}},
		"not base64":            {"a.?.c", time.Time{}},
		"another kind of token": {"0123456789abcdef", time.Time{}},
		"nothing":               {"", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claims, _ := serviceaccount.ReadToken([]byte(row.token))
			if got := claims.Expires.Time(); !got.Equal(row.want) ||
				got.IsZero() != row.want.IsZero() {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}

func TestWhatIsAToken(t *testing.T) {
	t.Parallel()
	for token, ok := range map[string]bool{"": false, "a.b.c": false, "a.e30.c": true,
		"a.e30": false} {
		if _, got := serviceaccount.ReadToken([]byte(token)); got != ok {
			t.Errorf("%q: %t", token, got)
		}
	}
}

func TestWhoseTokenItIs(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string][2]string{
		serviceaccount.Subject("mesh", "plugin"): {"mesh", "plugin"},
		"system:serviceaccount:mesh":             {},
		"alice":                                  {},
		"a:b":                                    {},
	} {
		namespace, account, ok := serviceaccount.Claims{Subject: subject}.Account()
		if ok != (want[0] != "") || ok && [2]string{namespace, account} != want {
			t.Errorf("%q: %q, %q, %t", subject, namespace, account, ok)
		}
	}
}
