package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// requestTimeout is for one request.
	requestTimeout = 15 * time.Second
	// pageSize is how many objects are asked for at once.
	pageSize = 500
	// most is how many objects of a kind are read. There are fewer nodes in a cluster.
	most = 20_000
)

// A question is about a list of the API.
type question struct {
	path     string // as /api/v1/nodes
	resource string // for people, and for a role: nodes, daemonsets.apps
	labels   string // a selector; "" is all
	fields   string // a selector; "" is all
}

// A refusal is why something was not read, and what helps.
type refusal struct {
	what, remedy string
	forbidden    bool
}

func (r *refusal) Error() string { return r.what }

// list reads a list, page by page. What was read before an error is returned with it.
func list[T any](ctx context.Context, client *rest.RESTClient, q question) ([]T, error) {
	var all []T
	next, again := "", true
	for len(all) < most {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		err := fetch(ctx, client, q.with(next), &page)
		switch {
		case apierrors.IsResourceExpired(err) && again: // the list has changed too much: anew
			all, next, again = nil, "", false
			continue
		case err != nil:
			return all, q.explain(err)
		}
		all = append(all, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return all, nil
		}
	}
	return all, &refusal{what: fmt.Sprintf("there are more than %d %s; the others were not read",
		most, q.resource)}
}

// pageRequest is for a part of a list.
type pageRequest struct {
	path  string
	query map[string]string
}

func (q question) with(next string) pageRequest {
	query := map[string]string{"limit": strconv.Itoa(pageSize)}
	for key, value := range map[string]string{"labelSelector": q.labels, "fieldSelector": q.fields,
		"continue": next} {
		if value != "" {
			query[key] = value
		}
	}
	return pageRequest{q.path, query}
}

func fetch(ctx context.Context, client *rest.RESTClient, t pageRequest, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := client.Get().AbsPath(t.path)
	for key, value := range t.query {
		request = request.Param(key, value)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the API server's answer is not what was asked for: %w", err)
	}
	return nil
}

// explain says what to do about a list that was not read.
func (q question) explain(err error) error {
	r := &refusal{what: q.resource + " were not read: " + cause(err)}
	switch {
	case apierrors.IsForbidden(err):
		r.forbidden = true
		r.what = "you may not list " + q.resource
		r.remedy = "have a role bound to you with the verb list for " + q.resource +
			" in all namespaces, or name the agent's by --agent-namespace"
	case apierrors.IsUnauthorized(err):
		r.what = "the API server does not accept the credentials"
		r.remedy = "log in again, or choose another context of the kubeconfig"
	case errors.Is(err, context.Canceled):
		r.what = "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		r.remedy = "check the network, and whether kubectl cluster-info gets an answer"
	}
	return r
}

// cause is an error without the server's address, in one line.
func cause(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// maxPage is how much is read of an agent's page. Metrics take some 30 KiB.
const maxPage = 1 << 20

// page reads a page of an agent through the API server. A page may say 503, with a text.
func page(ctx context.Context, client *rest.RESTClient, agent pod, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := client.Get().AbsPath("/api/v1/namespaces", agent.Metadata.Namespace, "pods",
		agent.Metadata.Name+":"+agent.port(), "proxy", name).MaxRetries(0).Stream(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return "", &refusal{what: "you may not read the pages of agents", forbidden: true,
			remedy: "have a role bound to you with the verb get for pods/proxy in namespace " +
				agent.Metadata.Namespace}
	case err != nil:
		if text := said(err); strings.HasPrefix(text, "not ready") {
			return text, nil
		}
		return "", err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxPage))
	return string(data), err
}

// said is the text of an answer whose status is an error.
func said(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Details == nil {
		return ""
	}
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return strings.TrimSpace(c.Message)
		}
	}
	return ""
}

// port is that of the agent's pages.
func (p pod) port() string {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == "metrics" {
				return strconv.Itoa(port.Port)
			}
		}
	}
	return "9466"
}
