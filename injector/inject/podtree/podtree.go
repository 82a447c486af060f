// Package podtree reads and changes a pod as the tree of its JSON, in which fields survive that
// nobody here knows.
//
//	pod, err := podtree.Decode(data)
//	podtree.Set(pod, "true", "metadata", "annotations", "sidecar.istio.io/inject")
//
// Be aware: what Get returns is a part of the tree, not a copy. Clone first what others hold.
package podtree

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Object is a JSON object: of strings, bools, int64, float64, nil, []any and more objects.
type Object = map[string]any

// Decode reads one JSON object. Numbers without a fraction stay whole.
func Decode(data []byte) (Object, error) {
	var o Object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("want an object")
	}
	return o, nil
}

// Clone copies a tree.
func Clone(o Object) Object { return runtime.DeepCopyJSON(o) }

// Get returns what is at a path, or nil.
func Get(o Object, path ...string) any {
	var value any = o
	for _, key := range path {
		object, ok := value.(Object)
		if !ok {
			return nil
		}
		value = object[key]
	}
	return value
}

// Map returns the object at a path; nil if there is none.
func Map(o Object, path ...string) Object {
	object, _ := Get(o, path...).(Object)
	return object
}

// List returns the list at a path; nil if there is none.
func List(o Object, path ...string) []any {
	list, _ := Get(o, path...).([]any)
	return list
}

// String returns the text at a path; "" if there is none.
func String(o Object, path ...string) string {
	text, _ := Get(o, path...).(string)
	return text
}

// Strings returns the texts of an object of texts, such as the labels; nil if there is none.
func Strings(o Object, path ...string) map[string]string {
	object := Map(o, path...)
	if object == nil {
		return nil
	}
	texts := make(map[string]string, len(object))
	for key, value := range object {
		if text, ok := value.(string); ok {
			texts[key] = text
		}
	}
	return texts
}

// Set writes a value at a path, and makes the objects on the way. What is on the way and no object
// is replaced.
func Set(o Object, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := o[key].(Object)
		if !ok {
			next = Object{}
			o[key] = next
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

// Delete removes what is at a path, if anything is.
func Delete(o Object, path ...string) {
	if parent := Map(o, path[:len(path)-1]...); parent != nil {
		delete(parent, path[len(path)-1])
	}
}

// Named returns the index of the object of that name in a list such as the containers; -1 if there
// is none.
func Named(list []any, name string) int {
	return slices.IndexFunc(list, func(item any) bool {
		object, ok := item.(Object)
		return ok && object["name"] == name
	})
}
