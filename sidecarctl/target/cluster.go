package target

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// FromCluster returns the pod that ref calls, as kubectl would have it: NAMESPACE/POD, POD or
// TYPE/NAME. Of a workload it is the template, not one of its pods. It waits 15 seconds at most,
// less if ctx says so.
//
// "a/b" is TYPE/NAME if a is a type (pod, deployment, statefulset, daemonset, replicaset, job,
// cronjob, replicationcontroller, their plurals, kubectl's short names, and these with their API
// group, as deployment.apps) and the namespace of the command line is not a itself. Else it is
// NAMESPACE/POD, and an error if the command line says another namespace.
func FromCluster(ctx context.Context, client *rest.RESTClient, ref string,
	o Options) ([]Pod, error) {
	r, err := parseReference(ref, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, api.Timeout)
	defer cancel()
	data, err := api.Get(ctx, client, r.resource.path(r.namespace, r.name)...)
	if err != nil {
		return nil, r.explain(err, client.Get().URL())
	}
	pods, err := r.read(data, o)
	if err != nil {
		return nil, fmt.Errorf("read %s: the API server's answer: %w", r, err)
	}
	for i := range pods {
		pods[i].addOwner(ctx, client)
		pods[i].addHandler(ctx, client)
	}
	return pods, nil
}

func (r reference) read(data []byte, o Options) ([]Pod, error) {
	document, err := oneJSON(data)
	if err != nil {
		return nil, err
	}
	object, ok := document.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is %s, want a %s", describe(document), r.resource.kind)
	}
	f := finder{options: o, live: true}
	if err := f.object(object, r.resource.kind); err != nil {
		return nil, err
	}
	if len(f.pods) != 1 {
		return nil, fmt.Errorf("there are %d pods in it, want 1 in a %s; is there another "+
			"server at this address?", len(f.pods), r.resource.kind)
	}
	return f.pods, nil
}

// explain says of a request that came to nothing what to do about it.
func (r reference) explain(err error, server *url.URL) error {
	if apierrors.IsNotFound(err) {
		return &fault{fmt.Sprintf("read %s: there is no %s %q in namespace %q; list them by "+
			"kubectl get %s -n %s, or write TYPE/NAME with one of %s", r, r.resource.kind, r.name,
			r.namespace, r.resource.full(), r.namespace, typeNames()), err}
	}
	return &fault{"read " + r.String() + ": " + whyNot(err, server, fmt.Sprintf("get for %s in "+
		"namespace %q", r.resource.full(), r.namespace)), err}
}

// whyNot says why a request came to nothing that takes a right.
func whyNot(err error, server *url.URL, right string) (text string) {
	switch {
	case apierrors.IsForbidden(err):
		text = fmt.Sprintf("it is forbidden; have a role bound to you with the verb %s: %s", right,
			cause(err))
	case apierrors.IsUnauthorized(err):
		text = fmt.Sprintf("API server %s does not accept the credentials; "+
			"log in again, or choose another context of the kubeconfig", server.Host)
	case isStatus(err):
		text = fmt.Sprintf("API server %s did not answer with it; "+
			"try again, or ask who runs it: %s", server.Host, cause(err))
	case errors.Is(err, api.ErrAnswer):
		text = fmt.Sprintf("%s; is there another server at %s?", foreign.Line(err.Error()),
			server.Host)
	case errors.Is(err, context.Canceled):
		text = "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("API server %s did not answer in time; "+
			"check the network, and whether kubectl cluster-info gets an answer", server.Host)
	default:
		text = fmt.Sprintf("API server %s not reached; check the kubeconfig's context and the "+
			"network, as by kubectl cluster-info: %s", server.Host, cause(err))
	}
	return text
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest
}

// cause is what is wrong without the request, which is known.
func cause(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return foreign.Line(err.Error())
}
