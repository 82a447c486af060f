package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sidecar-cni/sidecar-cni/installer/agent"
)

const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenLife is asked for; the API server may give less. An agent that is away, or cut off, for
	// a day has left a token that still works.
	tokenLife    = 48 * time.Hour
	tokenTimeout = 5 * time.Second
	tokenPause   = time.Minute // after a request that was refused
)

// access is how the plugin gets to the API server when the agent is away.
type access struct {
	server string
	token  func(context.Context) ([]byte, error)
}

// restConfig is how the agent itself gets there.
func (s *settings) restConfig() (*rest.Config, error) {
	if s.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	}
	if s.inCluster == "" {
		return nil, rest.ErrNotInCluster
	}
	return &rest.Config{
		Host: s.inCluster, BearerTokenFile: serviceAccountDir + "/token",
		TLSClientConfig: rest.TLSClientConfig{CAFile: serviceAccountDir + "/ca.crt"},
	}, nil
}

// agentClient is how the agent reads and writes objects.
func (s *settings) agentClient() (*rest.RESTClient, error) {
	config, err := s.restConfig()
	if err != nil {
		return nil, err
	}
	return agent.NewClient(config)
}

// access chooses the token: a file that somebody keeps fresh, else one that the API server makes
// for an account of few rights, else the agent's own.
func (s *settings) access(client *rest.RESTClient, onNode string) (access, error) {
	a := access{server: cmp.Or(s.apiServer, s.inCluster)}
	if a.server == "" {
		return access{}, errors.New(
			"--api-server: not set, and KUBERNETES_SERVICE_HOST and _PORT are not in the environment")
	}
	if path := s.tokenPath(); path != "" {
		a.token = fromFile(path)
	} else {
		a.token = (&requested{client: client, namespace: s.namespace, account: s.pluginAccount, onNode: onNode}).token
	}
	return a, nil
}

// tokenPath is the file that the plugin's token is copied from; empty if it is requested.
func (s *settings) tokenPath() string {
	switch {
	case s.tokenFile != "":
		return s.tokenFile
	case s.pluginAccount != "":
		return ""
	}
	return serviceAccountDir + "/token"
}

// installation is the name of this installation: that of the settings, else the uid of the agent's
// ServiceAccount, which is another one whenever it was created anew.
func (s *settings) installation() string {
	if s.installID != "" {
		return s.installID
	}
	token, err := os.ReadFile(serviceAccountDir + "/token")
	if err != nil {
		return ""
	}
	c, _ := readClaims(token)
	return c.Kubernetes.ServiceAccount.UID
}

// serviceURL is the address of the API server that the kubelet writes into each container's
// environment; "" outside of one.
func serviceURL(environ []string) string {
	var host, port string
	for _, pair := range environ {
		switch name, value, _ := strings.Cut(pair, "="); name {
		case "KUBERNETES_SERVICE_HOST":
			host = value
		case "KUBERNETES_SERVICE_PORT":
			port = value
		}
	}
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}

func fromFile(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
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
	onNode             string // its file
	last               []byte
	until, renew       time.Time
}

func (r *requested) token(ctx context.Context) ([]byte, error) {
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
		if there, none := os.ReadFile(r.onNode); none == nil {
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
	c, ok := readClaims(token)
	if !ok || c.Subject != r.subject() {
		return
	}
	from, until := time.Unix(int64(c.Issued), 0), time.Unix(int64(c.Expires), 0)
	r.last, r.until, r.renew = token, until, from.Add(until.Sub(from)/2)
}

func (r *requested) subject() string { return "system:serviceaccount:" + r.namespace + ":" + r.account }

func (r *requested) misfit(token []byte) error {
	if bytes.Equal(token, r.last) {
		return nil
	}
	return fmt.Errorf("request token for serviceaccount %s/%s: what came is no token of it", r.namespace, r.account)
}

// request asks in JSON: it is one document a day.
func (r *requested) request(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	ask := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d}}`, int(tokenLife.Seconds()))
	data, err := r.client.Post().Namespace(r.namespace).Resource("serviceaccounts").Name(r.account).SubResource("token").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body([]byte(ask)).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("request token for serviceaccount %s/%s: %w", r.namespace, r.account, err)
	}
	var made struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &made); err != nil {
		return nil, fmt.Errorf("request token for serviceaccount %s/%s: %w", r.namespace, r.account, err)
	}
	return []byte(made.Status.Token), nil
}

// claims are what a ServiceAccount's token, a JSON Web Token, says about itself.
type claims struct {
	Subject string  `json:"sub"`
	Issued  float64 `json:"iat"`
	Expires float64 `json:"exp"`

	Kubernetes struct {
		ServiceAccount struct {
			UID string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

func readClaims(token []byte) (claims, bool) {
	var c claims
	parts := bytes.Split(token, []byte("."))
	if len(parts) != 3 {
		return c, false
	}
	payload, err := base64.RawURLEncoding.AppendDecode(nil, parts[1])
	return c, err == nil && json.Unmarshal(payload, &c) == nil
}
