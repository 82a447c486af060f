// Package access is about the ways to the API server: the agent's own, and the one that it prepares
// for the plugin.
//
//	client, err := access.Client(api.Server{InCluster: api.InCluster(os.Environ())})
//	token := access.Plugin{Account: "sidecar-cni-plugin"}.Source(client, "kube-system")
//
// Be aware: the plugin's token belongs to another ServiceAccount than the agent's, since each pod
// that starts reads it from the node's disk; so it has fewer rights, and is requested.
package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/contract/serviceaccount"
	"github.com/sidecar-cni/sidecar-cni/daemon/api"
	"github.com/sidecar-cni/sidecar-cni/installer/agent"
)

const (
	// tokenLife is asked for; the API server may give less. An agent that is away, or cut off, for
	// a day has left a token that still works.
	tokenLife    = 48 * time.Hour
	tokenTimeout = 5 * time.Second
	tokenPause   = time.Minute // after a request that was refused
)

// Client reads and writes objects, see agent.NewClient.
func Client(s api.Server) (*rest.RESTClient, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	return agent.NewClient(config)
}

// AccountUID is the uid of the ServiceAccount of the pod that this process runs in, which is
// another one whenever the account was created anew; "" outside of a pod.
func AccountUID() string {
	token, err := os.ReadFile(api.AccountDir + "/token")
	if err != nil {
		return ""
	}
	c, _ := serviceaccount.ReadToken(token)
	return c.Kubernetes.ServiceAccount.UID
}

// Plugin is where the plugin's token comes from: a file that somebody keeps fresh, else one that
// the API server makes for an account of few rights, else the agent's own.
type Plugin struct {
	TokenFile string // kept fresh by somebody else; "" for none; goes before Account
	Account   string // a ServiceAccount in the agent's namespace
}

// Path is the file that the token is copied from; "" if it is requested.
func (p Plugin) Path() string {
	switch {
	case p.TokenFile != "":
		return p.TokenFile
	case p.Account != "":
		return ""
	}
	return api.AccountDir + "/token"
}

// Token returns one that can be used. onNode is the file that it is copied to: what is there
// already will do as long as the API server is away.
type Token func(ctx context.Context, onNode string) ([]byte, error)

// Source returns what the token comes from, for an agent of a namespace.
func (p Plugin) Source(client *rest.RESTClient, namespace string) Token {
	if path := p.Path(); path != "" {
		return fromFile(path)
	}
	return (&requested{client: client, namespace: namespace, account: p.Account}).token
}

func fromFile(path string) Token {
	return func(context.Context, string) ([]byte, error) {
		token, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
		if token = bytes.TrimSpace(token); len(token) == 0 {
			return nil, fmt.Errorf("read token: %s is empty", path)
		}
		return token, nil
	}
}

// requested keeps a token until half of its life is over, and as long as it is good if the API
// server is away. An agent that starts requests a new one, since that on the node may be of an
// account that was deleted and made anew.
type requested struct {
	client             *rest.RESTClient
	namespace, account string
	last               []byte
	until, renew       time.Time
}

func (r *requested) token(ctx context.Context, onNode string) ([]byte, error) {
	now := time.Now()
	if r.last != nil && now.Before(r.renew) {
		return r.last, nil
	}
	fresh, err := r.request(ctx)
	if err == nil {
		r.take(fresh)
		err = r.misfit(fresh)
	}
	if r.last == nil {
		if there, none := os.ReadFile(onNode); none == nil {
			r.take(bytes.TrimSpace(there))
		}
	}
	if err != nil && r.last != nil && now.Before(r.until) {
		r.renew = now.Add(tokenPause)
		return r.last, nil
	}
	return r.last, err
}

// take keeps a token if it is the account's.
func (r *requested) take(token []byte) {
	c, ok := serviceaccount.ReadToken(token)
	if !ok || c.Subject != r.subject() {
		return
	}
	from, until := time.Unix(int64(c.Issued), 0), time.Unix(int64(c.Expires), 0)
	r.last, r.until, r.renew = token, until, from.Add(until.Sub(from)/2)
}

func (r *requested) subject() string { return serviceaccount.Subject(r.namespace, r.account) }

func (r *requested) misfit(token []byte) error {
	if bytes.Equal(token, r.last) {
		return nil
	}
	return fmt.Errorf("request token for serviceaccount %s/%s: what came is no token of it",
		r.namespace, r.account)
}

// request asks in JSON: it is one document a day.
func (r *requested) request(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	ask := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest",`+
		`"spec":{"expirationSeconds":%d}}`, int(tokenLife.Seconds()))
	data, err := r.client.Post().Namespace(r.namespace).Resource("serviceaccounts").Name(r.account).
		SubResource("token").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body([]byte(ask)).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("request token for serviceaccount %s/%s: %w", r.namespace, r.account,
			err)
	}
	var made struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &made); err != nil {
		return nil, fmt.Errorf("request token for serviceaccount %s/%s: %w", r.namespace, r.account,
			err)
	}
	return []byte(made.Status.Token), nil
}
