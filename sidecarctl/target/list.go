package target

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/api"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/podtemplate"
)

// Selection says which pods of a cluster are meant.
type Selection struct {
	Node      string // "" is all
	Namespace string // "" is all
}

func (s Selection) list() api.List {
	l := api.List{Path: api.Path("/api/v1", s.Namespace, "pods")}
	if s.Node != "" {
		l.Fields = "spec.nodeName=" + s.Node
	}
	return l
}

// OnNodes returns the pods that run on nodes: those that ended, or are about to, and those that no
// node has yet, are left out. One that cannot be read has Unread, so that its author does not keep
// the others from being looked at. A pod without a proxy has no Object, which is large.
func OnNodes(ctx context.Context, client *rest.RESTClient, s Selection) ([]Pod, error) {
	var pods []Pod
	handlers := map[string]string{}
	for object, err := range api.Each[map[string]any](ctx, client, s.list()) {
		if err != nil {
			why := api.WhyNot(err, client.Get().URL(), "list for pods")
			return nil, &foreign.Error{Text: "list pods: " + why.String(), Cause: err}
		}
		if dig(object, "metadata")["deletionTimestamp"] != nil {
			continue
		}
		pod := listed(object)
		if pod.Node == "" || pod.Phase == "Succeeded" || pod.Phase == "Failed" {
			continue
		}
		if pod.Unread != nil {
			pods = append(pods, pod)
			continue
		}
		class := pod.Facts.Spec.RuntimeClass
		if handler, known := handlers[class]; known {
			pod.setHandler(handler)
		} else {
			pod.addHandler(ctx, client)
			handlers[class] = pod.Facts.Spec.RuntimeHandler
		}
		isProxy := func(c Container) bool { return c.Name == redirect.ProxyContainer }
		if !pod.Facts.NeedsRedirection() && !slices.ContainsFunc(pod.Containers, isProxy) {
			pod.Object = nil // no node has a record of it either
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// listed reads a pod of a list.
func listed(object map[string]any) Pod {
	f := finder{live: true}
	err := f.object(object, podtemplate.Pod)
	if err == nil && len(f.pods) == 1 {
		return f.pods[0]
	}
	if err == nil {
		err = errors.New("it is no pod")
	}
	text := func(in, key string) string {
		word, _ := dig(object, in)[key].(string)
		return foreign.Name(word)
	}
	return Pod{Kind: podtemplate.Pod, Name: text("metadata", "namespace") + "/" +
		text("metadata", "name"), Node: text("spec", "nodeName"), Phase: text("status", "phase"),
		Unread: fmt.Errorf("read it: %w", err)}
}
