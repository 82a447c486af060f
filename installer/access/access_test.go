package access

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
)

// token is one of a ServiceAccount, made so long ago and good for so long from now.
func token(account string, age, left time.Duration) string {
	now := time.Now()
	payload := fmt.Sprintf(`{"sub":"system:serviceaccount:mesh:%s","iat":%d,"exp":%d}`, account,
		now.Add(-age).Unix(), now.Add(left).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestTokensAreRequestedInTime(t *testing.T) {
	t.Parallel()
	fresh := token("plugin", 0, 48*time.Hour)
	young, old := token("plugin", time.Hour, 47*time.Hour),
		token("plugin", 40*time.Hour, 8*time.Hour)
	late, others := token("plugin", 49*time.Hour, -time.Hour), token("agent", 0, 48*time.Hour)
	for name, row := range map[string]struct {
		onNode, made string // by the API server, which is away without one
		want         string // no token without one
		asked        int
	}{
		"none yet":                        {"", fresh, fresh, 1},
		"a young one is replaced, too":    {young, fresh, fresh, 1},
		"a young one without a server":    {young, "", young, 1},
		"an old one is replaced":          {old, fresh, fresh, 1},
		"an old one without a server":     {old, "", old, 1},
		"one that has run out":            {late, fresh, fresh, 1},
		"that, without a server":          {late, "", "", 2},
		"one of another account":          {others, fresh, fresh, 1},
		"that, without a server either":   {others, "", "", 2},
		"what is no token":                {"abc", fresh, fresh, 1},
		"a server with another's token":   {"", others, "", 2},
		"that, and an old one of its own": {old, others, old, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				asked++
				var ask struct {
					Spec struct{ ExpirationSeconds int }
				}
				body, _ := io.ReadAll(r.Body)
				err := json.Unmarshal(body, &ask)
				if r.URL.Path != "/api/v1/namespaces/mesh/serviceaccounts/plugin/token" ||
					err != nil || ask.Spec.ExpirationSeconds != 48*3600 {
					t.Errorf("asked for %s with %s", r.URL.Path, body)
				}
				if row.made == "" {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, `{"status":{"token":%q}}`, row.made)
			}))
			defer server.Close()
			client, err := agent.NewClient(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(row.onNode), 0o600); err != nil {
				t.Fatal(err)
			}
			r := &requested{client: client, namespace: "mesh", account: "plugin"}
			for range 2 { // the second time soon after
				got, err := r.token(t.Context(), file)
				if string(got) != row.want && err == nil || (err != nil) != (row.want == "") {
					t.Errorf("got %s, %v; want %s", got, err, row.want)
				}
			}
			if asked != row.asked {
				t.Errorf("the API server was asked %d times, want %d", asked, row.asked)
			}
		})
	}
}
