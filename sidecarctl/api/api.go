// Package api reads JSON of any kind from the API server.
//
//	pods := api.List{Path: api.Path("/api/v1", namespace, "pods"), Labels: "app=web"}
//	for pod, err := range api.Each[pod](ctx, client, pods) {
//
// An error is a Status where the API server has sent one.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Timeout is for one request.
const Timeout = 15 * time.Second

// ErrAnswer is that of an answer that is no such object.
var ErrAnswer = errors.New("the API server's answer is not what was asked for")

// perPage is how many objects of a list are asked for at once.
const perPage = "500"

// List says which objects are meant.
type List struct {
	Path   string // as /api/v1/nodes
	Labels string // a selector; "" is all
	Fields string // a selector; "" is all
}

// Path is that of a kind of objects, in a namespace or, if it is "", in all.
func Path(version, namespace, kind string) string {
	if namespace == "" {
		return version + "/" + kind
	}
	return version + "/namespaces/" + namespace + "/" + kind
}

// Get reads one object.
func Get(ctx context.Context, client *rest.RESTClient, path ...string) ([]byte, error) {
	return read(ctx, client.Get().AbsPath(path...))
}

// Each yields the objects of a list, page by page. Behind an error there are no more.
func Each[T any](ctx context.Context, client *rest.RESTClient, l List) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next, resumed := "", false; ; {
			var page struct {
				Metadata struct {
					Continue string `json:"continue"`
				} `json:"metadata"`
				Items []T `json:"items"`
			}
			data, err := read(ctx, l.request(client, next))
			if token := resumption(err); token != "" && !resumed {
				next, resumed = token, true
				continue
			}
			if err == nil {
				err = unmarshal(data, &page)
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, object := range page.Items {
				if !yield(object, nil) {
					return
				}
			}
			if next, resumed = page.Metadata.Continue, false; next == "" {
				return
			}
		}
	}
}

// resumption is where a list goes on that took so long that the API server has forgotten its state:
// what comes is of the present. It is "" after any other error.
func resumption(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsResourceExpired(err) {
		return ""
	}
	return status.Status().Continue
}

func (l List) request(client *rest.RESTClient, next string) *rest.Request {
	request := client.Get().AbsPath(l.Path).Param("limit", perPage)
	for _, p := range [][2]string{{"labelSelector", l.Labels}, {"fieldSelector", l.Fields},
		{"continue", next}} {
		if p[1] != "" {
			request = request.Param(p[0], p[1])
		}
	}
	return request
}

func unmarshal(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}

func read(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // of Raw's error the Status is not read yet
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return data, nil
}
