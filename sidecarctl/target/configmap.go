package target

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// ConfigMap returns a ConfigMap in JSON. It waits 15 seconds at most, less if ctx says so.
func ConfigMap(ctx context.Context, client *rest.RESTClient, namespace, name string) (
	[]byte, error) {
	data, err := api.Get(ctx, client, "/api/v1", "namespaces", namespace, "configmaps", name)
	if err != nil {
		text := api.WhyNot(err, client.Get().URL(),
			fmt.Sprintf("get for configmaps in namespace %q", namespace)).String()
		if apierrors.IsNotFound(err) {
			text = "there is none; list them by kubectl get configmaps -n " + namespace
		}
		return nil, &foreign.Error{Cause: err,
			Text: fmt.Sprintf("read ConfigMap %s/%s: %s", namespace, name, text)}
	}
	return data, nil
}
