package certify

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-cni/sidecar-cni/injector/certificate"
)

const webhookConfigurations = "mutatingwebhookconfigurations"

// configurations returns those of the webhook configurations that are there. Chart and
// administrator decide which these are.
func (r run) configurations(ctx context.Context) ([]admissionv1.MutatingWebhookConfiguration,
	error) {
	var found []admissionv1.MutatingWebhookConfiguration
	for _, name := range r.of.Configurations {
		var c admissionv1.MutatingWebhookConfiguration
		err := r.webhooks.Get().Resource(webhookConfigurations).Name(name).Do(ctx).Into(&c)
		switch {
		case apierrors.IsNotFound(err): // passed over
		case err != nil:
			return nil, fmt.Errorf("read mutatingwebhookconfiguration %q: %w", name, err)
		default:
			found = append(found, c)
		}
	}
	return found, nil
}

// trusted returns whom the webhook configurations trust. A caBundle that
// cannot be parsed is ignored.
func trusted(configurations []admissionv1.MutatingWebhookConfiguration) []*x509.Certificate {
	var all []*x509.Certificate
	for i := range configurations {
		for _, w := range configurations[i].Webhooks {
			certs, err := certificate.ParseBundle(w.ClientConfig.CABundle)
			if err == nil && w.ClientConfig.Service != nil {
				all = merge(all, certs)
			}
		}
	}
	return all
}

// publish has the webhooks of a configuration that are called through a Service trust the bundle.
// Webhooks at a URL are somebody else's. What it writes it does not own afterwards: a caBundle in
// somebody's server-side apply, as Helm's, would conflict with ours.
func (r run) publish(ctx context.Context, c *admissionv1.MutatingWebhookConfiguration,
	bundle []byte) error {
	var changes []operation
	for i := range c.Webhooks {
		client := c.Webhooks[i].ClientConfig
		if client.Service != nil && !bytes.Equal(client.CABundle, bundle) {
			changes = append(changes, operation{"add",
				fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
		}
	}
	if len(changes) > 0 {
		if err := r.patch(ctx, c, changes); err != nil {
			return err
		}
		r.log.Info("wrote authorities into webhook configuration",
			zap.String("configuration", c.Name))
	}
	rest := slices.DeleteFunc(slices.Clone(c.ManagedFields),
		func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager })
	// An empty list would make the API server drop all managed fields.
	if len(rest) == len(c.ManagedFields) || len(rest) == 0 {
		return nil
	}
	return r.patch(ctx, c, []operation{{"replace", "/metadata/managedFields", rest}})
}

// An operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patch changes a configuration, if it is still the one that was read, which it replaces by what it
// is then.
func (r run) patch(ctx context.Context, c *admissionv1.MutatingWebhookConfiguration,
	changes []operation) error {
	body, err := json.Marshal(append(
		[]operation{{"test", "/metadata/resourceVersion", c.ResourceVersion}}, changes...))
	var patched admissionv1.MutatingWebhookConfiguration // decoding keeps what is there
	if err == nil {
		err = r.webhooks.Patch(types.JSONPatchType).Resource(webhookConfigurations).Name(c.Name).
			Param("fieldManager", manager).Body(body).Do(ctx).Into(&patched)
	}
	if err != nil {
		return fmt.Errorf("patch mutatingwebhookconfiguration %q: %w", c.Name, err)
	}
	*c = patched
	return nil
}
