// Package patch writes down what was changed of a pod as a JSON patch.
//
//	text, err := patch.Between(before, after)
//
// Be aware: a field of metadata or spec is one operation, whatever changed in it: spec.containers
// is written whole. Labels and annotations are compared key by key.
package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// The operations of RFC 6902 that are needed.
const (
	add     = "add"
	remove  = "remove"
	replace = "replace"
)

// operation is one step of a patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"` // nil: has none; a pointer, since null is a value, too
}

// opened are the objects whose fields are compared one by one, by their paths. Of the pod itself
// inject and strip change no other field.
var opened = map[string]bool{
	"/metadata": true, "/metadata/annotations": true, "/metadata/labels": true, "/spec": true,
}

// Between returns the JSON patch (RFC 6902) that turns before into after; nil if they are the same.
// Only what inject and strip may change is looked at.
func Between(before, after podtree.Object) ([]byte, error) {
	var operations []operation
	for _, part := range []string{"metadata", "spec"} {
		operations = appendField(operations, "/"+part, field(before, part), field(after, part))
	}
	if len(operations) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write JSON patch: %w", err)
	}
	return text, nil
}

// field returns a pointer to a field's value; nil if the object has no such field.
func field(of podtree.Object, name string) *any {
	value, ok := of[name]
	if !ok {
		return nil
	}
	return &value
}

// appendField appends what makes the second value of the first, each of which may be missing.
func appendField(operations []operation, path string, before, after *any) []operation {
	switch {
	case before == nil && after == nil:
		return operations
	case before == nil:
		return append(operations, operation{add, path, after})
	case after == nil:
		return append(operations, operation{remove, path, nil})
	}
	if opened[path] {
		was, isObject := (*before).(podtree.Object)
		is, stays := (*after).(podtree.Object)
		if isObject && stays {
			return appendFields(operations, path, was, is)
		}
	}
	if reflect.DeepEqual(*before, *after) {
		return operations
	}
	return append(operations, operation{replace, path, after})
}

// appendFields does so for each field of two objects, in the order of their names.
func appendFields(operations []operation, path string, before, after podtree.Object) []operation {
	names := slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		operations = appendField(operations, path+"/"+escape.Replace(name), field(before, name),
			field(after, name))
	}
	return operations
}

// escape writes a name as a part of a path (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")
