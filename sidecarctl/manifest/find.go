package manifest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/podtemplate"
)

// pod is a pod or a pod's template in a document.
type pod struct {
	Workload
	path []any          // of body in the document: keys and indices
	body podtree.Object // what has metadata and spec
}

// finder collects the pods of a document.
type finder struct {
	pods   []*pod
	others []podtree.Object // objects without one
}

// origin is how the finder came to an object. The items of a PodList, as the API server writes it,
// have neither kind nor version: the list says it.
type origin struct {
	version, kind string
	path          []any
}

func (f *finder) object(object podtree.Object, from origin) {
	version := cmp.Or(podtree.String(object, "apiVersion"), from.version)
	kind := cmp.Or(podtree.String(object, "kind"), from.kind)
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		for i, item := range items {
			object, _ := item.(podtree.Object)
			f.object(object, origin{version, strings.TrimSuffix(kind, "List"),
				with(from.path, "items", i)})
		}
		return
	}
	body, path := podtemplate.Find(object, kind)
	if _, ok := podtree.Map(body, "spec")["containers"]; !ok || kind == "" {
		f.others = append(f.others, object)
		return
	}
	p := &pod{path: from.path, body: body, Workload: Workload{
		APIVersion: version, Kind: kind, Metadata: podtree.Map(object, "metadata"),
		Pod: podOf(body), Where: where(from.path, object, kind, path),
	}}
	for _, key := range path {
		p.path = with(p.path, key)
	}
	f.pods = append(f.pods, p)
}

// with returns a longer path, of its own memory.
func with(path []any, steps ...any) []any {
	return append(append(make([]any, 0, len(path)+len(steps)), path...), steps...)
}

// podOf returns metadata and spec alone.
func podOf(body podtree.Object) podtree.Object {
	only := podtree.Object{}
	for _, key := range podKeys {
		if value, ok := body[key]; ok {
			only[key] = value
		}
	}
	return only
}

// podKeys are what of a pod a Change sees.
var podKeys = []string{"metadata", "spec"}

// where names a pod for people.
func where(at []any, object podtree.Object, kind string, path []string) string {
	words := []string{}
	if len(at) > 0 {
		words = append(words, pathText(at))
	}
	name := cmp.Or(podtree.String(object, "metadata", "name"),
		podtree.String(object, "metadata", "generateName"))
	if namespace := podtree.String(object, "metadata", "namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	words = append(words, strings.TrimSpace(foreign.Name(kind)+" "+foreign.Name(name)))
	if len(path) > 0 {
		words = append(words, strings.Join(path, "."))
	}
	return strings.Join(words, ", ")
}

// pathText writes a path as in items[3].spec.
func pathText(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// valueAt returns what is at a path of a document.
func valueAt(value any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		case string:
			object, _ := value.(podtree.Object)
			value = object[step]
		}
	}
	return value
}
