package target

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/podtemplate"
)

// Selection says which pods of a cluster are meant.
type Selection struct {
	Node      string // "" is all
	Namespace string // "" is all
}

// perPage is how many pods are asked for at once.
const perPage = "500"

// OnNodes returns the pods that run on nodes: those that ended, or are about to, and those that no
// node has yet, are left out.
func OnNodes(ctx context.Context, client *rest.RESTClient, s Selection) ([]Pod, error) {
	var pods []Pod
	handlers := map[string]string{}
	for next := ""; ; {
		page, more, err := s.page(ctx, client, next)
		if err != nil {
			return nil, err
		}
		f := finder{live: true}
		for _, object := range page {
			if dig(object, "metadata")["deletionTimestamp"] != nil {
				continue
			}
			if err := f.object(object, podtemplate.Pod); err != nil {
				return nil, fmt.Errorf("read pods: %w", err)
			}
		}
		for _, pod := range f.pods {
			if pod.Node == "" || pod.Phase == "Succeeded" || pod.Phase == "Failed" {
				continue
			}
			class := pod.Facts.Spec.RuntimeClass
			if handler, known := handlers[class]; known {
				pod.setHandler(handler)
			} else {
				pod.addHandler(ctx, client)
				handlers[class] = pod.Facts.Spec.RuntimeHandler
			}
			pods = append(pods, pod)
		}
		if next = more; next == "" {
			return pods, nil
		}
	}
}

func (s Selection) page(ctx context.Context, client *rest.RESTClient,
	next string) (objects []map[string]any, more string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := []string{"/api/v1/pods"}
	if s.Namespace != "" {
		path = []string{"/api/v1/namespaces", s.Namespace, "pods"}
	}
	request := client.Get().AbsPath(path...).Param("limit", perPage)
	if next != "" {
		request = request.Param("continue", next)
	}
	if s.Node != "" {
		request = request.Param("fieldSelector", "spec.nodeName="+s.Node)
	}
	result := request.Do(ctx)
	err = result.Error() // of Raw's error the Status is not read yet
	var data []byte
	if err == nil {
		data, err = result.Raw()
	}
	var list struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []map[string]any `json:"items"`
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		why := whyNot(err, client.Get().URL(), "list for pods")
		return nil, "", &fault{"list pods: " + why, err}
	}
	return list.Items, list.Metadata.Continue, nil
}
