package target

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
)

// ConfigMap returns a ConfigMap in JSON. It waits 15 seconds at most, less if ctx says so.
func ConfigMap(ctx context.Context, client *rest.RESTClient, namespace, name string) (
	[]byte, error) {
	data, err := api.Get(ctx, client, "api", "v1", "namespaces", namespace, "configmaps", name)
	if err != nil {
		text := whyNot(err, client.Get().URL(),
			fmt.Sprintf("get for configmaps in namespace %q", namespace))
		if apierrors.IsNotFound(err) {
			text = "there is none; list them by kubectl get configmaps -n " + namespace
		}
		return nil, &fault{fmt.Sprintf("read ConfigMap %s/%s: %s", namespace, name, text), err}
	}
	return data, nil
}
