package target

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// addOwner reads the annotations of the object that controls a pod. A Deployment's are copied to
// its ReplicaSets, so that the controller alone is to be asked. Whoever may not read it does
// without.
func (p *Pod) addOwner(ctx context.Context, client *rest.RESTClient) {
	references, _ := dig(p.Object, "metadata")["ownerReferences"].([]any)
	for _, one := range references {
		reference, _ := one.(map[string]any)
		kind, _ := reference["kind"].(string)
		name, _ := reference["name"].(string)
		version, _ := reference["apiVersion"].(string)
		controls, _ := reference["controller"].(bool)
		at := slices.IndexFunc(resources, func(r resource) bool { return r.kind == kind })
		if !controls || at < 0 || name == "" ||
			version != strings.TrimPrefix(resources[at].group+"/v1", "/") {
			continue
		}
		var owner struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		path := resources[at].path(p.Facts.Namespace, name)
		if data, err := api.Get(ctx, client, path...); err == nil &&
			json.Unmarshal(data, &owner) == nil {
			p.Owner, p.Outside = kind+" "+foreign.Name(name), owner.Metadata.Annotations
		}
	}
}

// addHandler reads the handler of a pod's runtime class, which decides about some pods. Whoever may
// not read it does without.
func (p *Pod) addHandler(ctx context.Context, client *rest.RESTClient) {
	if p.Facts.Spec.RuntimeClass == "" || p.Facts.Spec.RuntimeHandler != "" {
		return
	}
	var class struct {
		Handler string `json:"handler"`
	}
	data, err := api.Get(ctx, client, "/apis/node.k8s.io/v1", "runtimeclasses",
		p.Facts.Spec.RuntimeClass)
	if err != nil || json.Unmarshal(data, &class) != nil {
		return
	}
	p.setHandler(class.Handler)
}

func (p *Pod) setHandler(handler string) {
	p.Facts.Spec.RuntimeHandler = handler
	if p.Object != nil && handler != "" {
		p.Object[handlerKey] = handler
	}
}

// Manifest is the pod as its node is told of it.
func (p Pod) Manifest() ([]byte, error) { return json.Marshal(p.Object) }
