package target

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/podtemplate"
)

// finder collects the pods of documents.
type finder struct {
	options Options
	live    bool // the documents are what the API has now
	pods    []Pod
	others  []string // the kinds of what has no pod, each once
}

func (f *finder) document(document any) error {
	object, ok := document.(map[string]any)
	if !ok {
		return fmt.Errorf("it is %s; want an object with apiVersion and kind", describe(document))
	}
	return f.object(object, "")
}

// object looks for pods in an object. kind is what it is if it does not say: of the items of a
// PodList, as the API server writes it, none does.
func (f *finder) object(object map[string]any, kind string) error {
	if written, _ := object["kind"].(string); written != "" {
		kind = written
	}
	if items, ok := object["items"]; ok && strings.HasSuffix(kind, "List") {
		return f.list(items, strings.TrimSuffix(kind, "List"))
	}
	body, path := podIn(object, kind)
	if kind == "" || body == nil {
		f.passOver(kind)
		return nil
	}
	s := source{owner: object, kind: kind, body: body, path: path}
	pod, err := s.pod(f.options)
	if err != nil {
		return fmt.Errorf("%s: %w", s.describe(), err)
	}
	if !f.live {
		pod.Phase = "" // that of when the file was written
	} else if s.path == "" {
		pod.Object = object
	}
	f.pods = append(f.pods, pod)
	return nil
}

func (f *finder) list(items any, kind string) error {
	objects, ok := items.([]any)
	if !ok && items != nil {
		return fmt.Errorf("items is %s; want a list of objects", describe(items))
	}
	if len(objects) == 0 {
		f.passOver("an empty " + kind + "List")
	}
	for i, item := range objects {
		object, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("items[%d] is %s; want an object", i, describe(item))
		}
		if err := f.object(object, kind); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

func (f *finder) passOver(kind string) {
	if kind == "" {
		kind = "an object without a kind"
	}
	if kind = foreign.Name(kind); !slices.Contains(f.others, kind) && len(f.others) < 4*maxKinds {
		f.others = append(f.others, kind)
	}
}

// podIn is podtemplate.Find with the path as text, with a dot behind it.
func podIn(object map[string]any, kind string) (body map[string]any, path string) {
	body, keys := podtemplate.Find(object, kind)
	for _, key := range keys {
		path += key + "."
	}
	return body, path
}

func dig(object map[string]any, path ...string) map[string]any {
	return podtemplate.Dig(object, path...)
}

// describe says what a value of JSON is.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "true or false"
	}
	return "a number"
}
