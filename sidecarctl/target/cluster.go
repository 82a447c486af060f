package target

import (
	"context"
	"fmt"
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
		return &foreign.Error{Text: fmt.Sprintf("read %s: there is no %s %q in namespace %q; list "+
			"them by kubectl get %s -n %s, or write TYPE/NAME with one of %s", r, r.resource.kind,
			r.name, r.namespace, r.resource.full(), r.namespace, typeNames()), Cause: err}
	}
	return &foreign.Error{Text: "read " + r.String() + ": " + api.WhyNot(err, server,
		fmt.Sprintf("get for %s in namespace %q", r.resource.full(), r.namespace)).String(),
		Cause: err}
}
