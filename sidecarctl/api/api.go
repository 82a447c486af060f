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

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// Timeout is for one request.
const Timeout = 15 * time.Second

// ErrRedirect is that of a server that sends elsewhere whoever asks.
var ErrRedirect = errors.New("the answer is a redirect")

// ErrName is that of a name that leads to something else than an object of this name.
var ErrName = errors.New("no object can have this name")

// ErrAnswer is that of an answer that is no such object.
var ErrAnswer = errors.New("the API server's answer is not what was asked for")

// perPage is how many objects of a list are asked for at once.
const perPage = "500"

// List says which objects are meant.
type List struct {
	Path   []string // as Path makes it
	Labels string   // a selector; "" is all
	Fields string   // a selector; "" is all
}

// Path is that of a kind of objects, in a namespace or, if it is "", in all. version is as /api/v1
// or /apis/apps/v1.
func Path(version, namespace, kind string) []string {
	if namespace == "" {
		return []string{version, kind}
	}
	return []string{version, "namespaces", namespace, kind}
}

// At returns a request for what has a path: that of Path, and what is below it. Behind the version
// all has to be names: the author of a pod chooses that of its owner, and one with ".." in it would
// have the API server pass the request on to a pod of his.
func At(client *rest.RESTClient, path ...string) (*rest.Request, error) {
	for _, name := range path[1:] {
		if name == "" || len(rest.IsValidPathSegmentName(name)) > 0 {
			return nil, fmt.Errorf("%w: %q", ErrName, foreign.Cut(name))
		}
	}
	return client.Get().AbsPath(path...), nil
}

// Get reads one object.
func Get(ctx context.Context, client *rest.RESTClient, path ...string) ([]byte, error) {
	request, err := At(client, path...)
	if err != nil {
		return nil, err
	}
	return read(ctx, request)
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
			data, err := l.read(ctx, client, next)
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

func (l List) read(ctx context.Context, client *rest.RESTClient, next string) ([]byte, error) {
	request, err := At(client, l.Path...)
	if err != nil {
		return nil, err
	}
	request = request.Param("limit", perPage)
	for _, p := range [][2]string{{"labelSelector", l.Labels}, {"fieldSelector", l.Fields},
		{"continue", next}} {
		if p[1] != "" {
			request = request.Param(p[0], p[1])
		}
	}
	return read(ctx, request)
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
