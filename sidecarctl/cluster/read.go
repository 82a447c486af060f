package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
)

// most is how many objects of a kind are read. There are fewer nodes in a cluster.
const most = 20_000

// A refusal is why something was not read, and what helps.
type refusal struct {
	what, remedy string
	forbidden    bool
	cause        error // nil where there is none but what is said
}

func (r *refusal) Error() string { return r.what }

func (r *refusal) Unwrap() error { return r.cause }

// list reads a list. What was read before an error is returned with it.
func list[T any](ctx context.Context, client *rest.RESTClient, resource string, l api.List) (
	[]T, error) {
	var all []T
	for one, err := range api.Each[T](ctx, client, l) {
		if err != nil {
			return all, explain(resource, err, client.Get().URL())
		}
		if len(all) == most {
			return all, &refusal{what: fmt.Sprintf("there are more than %d %s; the others were "+
				"not read", most, resource)}
		}
		all = append(all, one)
	}
	return all, nil
}

// explain says what to do about a list that was not read.
func explain(resource string, err error, server *url.URL) error {
	if apierrors.IsForbidden(err) {
		return &refusal{what: "you may not list " + resource, forbidden: true,
			remedy: "have a role bound to you with the verb list for " + resource +
				" in all namespaces, or name the agent's by --agent-namespace"}
	}
	why := api.WhyNot(err, server, "list for "+resource)
	r := &refusal{what: resource + " were not read: " + why.What, remedy: why.Remedy, cause: err}
	if why.Cause != "" {
		r.what += ": " + why.Cause
	}
	return r
}

// maxPage is how large a page of an agent may be. Metrics take some 30 KiB.
const maxPage = 1 << 20

// page reads a page of an agent through the API server. A page may say 503, with a text.
func page(ctx context.Context, client *rest.RESTClient, agent pod, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, api.Timeout)
	defer cancel()
	request, err := api.At(client, "/api/v1", "namespaces", agent.Metadata.Namespace, "pods",
		agent.Metadata.Name+":"+agent.port(), "proxy", name)
	if err != nil {
		return "", err
	}
	body, err := request.MaxRetries(0).Stream(ctx)
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
	data, err := bounded.Read(body, maxPage)
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
