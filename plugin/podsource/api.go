package podsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-cni/sidecar-cni/contract/protocol"
)

func (s Sources) askAPI(ctx context.Context, q question) answer {
	a, err := loadAccess(s.Kubeconfig)
	if err != nil {
		return answer{verdict: misconfigured, err: err, remedy: credentialRemedy}
	}
	result := a.read(ctx, s.dial, q)
	if result.err != nil {
		result.err = fmt.Errorf("%s: %w", a.server, result.err)
	}
	if result.remedy == "" {
		result.remedy = fmt.Sprintf(serverRemedy, a.server, a.credential.kubeconfig)
	}
	return result
}

// read makes one request. That takes no more than net/http: client-go's REST client, linked in and
// not even called, makes each start of the plugin 40 % slower, that for a pod that is not ours too.
// Each try is a new connection, and so may reach another replica.
func (a access) read(ctx context.Context, dial Dial, q question) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(a.server, "/")+q.path, http.NoBody)
	if err != nil {
		return answer{verdict: misconfigured, err: err, remedy: credentialRemedy}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	if a.credential.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.credential.token)
	}
	resp, err := a.client(dial).Do(req)
	if err != nil {
		return a.unheard(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, protocol.MaxAnswer))
	if err != nil {
		return a.unheard(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return q.take(body)
	}
	return a.judge(resp, body, q)
}

func (a access) client(dial Dial) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:        dial,
			TLSClientConfig:    a.tls,
			DisableKeepAlives:  true,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// A status is what the API server says instead of an object.
type status struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Details struct {
		RetryAfterSeconds int `json:"retryAfterSeconds"`
	} `json:"details"`
}

// judge makes a verdict of an answer that is not what was asked for.
func (a access) judge(resp *http.Response, body []byte, q question) answer {
	var said status
	spoken := json.Unmarshal(body, &said) == nil && said.Kind == "Status"
	if !spoken {
		said = status{Message: string(body)}
	}
	words := fmt.Errorf("%d %s: %s", resp.StatusCode, http.StatusText(resp.StatusCode),
		brief(said.Message))
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized:
		return answer{verdict: unauthorized, err: fmt.Errorf("%w (%v)", words, a.credential),
			remedy: a.credential.refusedRemedy()}
	case code == http.StatusForbidden:
		remedy := fmt.Sprintf(rightRemedy, a.credential.holder(), q.resource)
		return answer{verdict: forbidden, err: fmt.Errorf("%w (%v)", words, a.credential),
			remedy: remedy}
	case code == http.StatusNotFound && spoken:
		// A 404 without a Status is about the path: then this is no API server.
		return answer{verdict: absent, err: errAbsent}
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests,
		code >= http.StatusInternalServerError:
		seconds := said.Details.RetryAfterSeconds
		if header, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			seconds = header
		}
		return answer{verdict: undecided, err: words, remedy: overloadRemedy,
			after: time.Duration(seconds) * time.Second}
	default:
		return answer{verdict: rejected, err: words}
	}
}

// unheard is about a try that brought no answer, or none that could be read.
func (a access) unheard(ctx context.Context, err error) answer {
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		err = fmt.Errorf("its certificate does not verify with %s: %w", a.ca, untrusted.Err)
		return answer{verdict: away, err: err, remedy: a.trustRemedy(untrusted.Err)}
	}
	result := silence(ctx, err)
	result.remedy = fmt.Sprintf(reachRemedy, a.server)
	return result
}

func (a access) trustRemedy(err error) string {
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf(serverNameRemedy, a.credential.kubeconfig)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return clockRemedy
	default:
		return fmt.Sprintf(caRemedy, a.ca)
	}
}
