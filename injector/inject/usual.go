package inject

import (
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// readUsual reads YAML whose tree is the same with and without the way through JSON, which takes
// half of the time. It does not read the rest: texts that are no UTF-8, fractions, keys that are no
// texts, keys that are there twice, and mistakes.
func readUsual(text []byte) (podtree.Object, bool) {
	var value any
	if err := yamlv2.UnmarshalStrict(text, &value); err != nil {
		return nil, false
	}
	tree, ok := asTree(value)
	object, isObject := tree.(podtree.Object)
	return object, ok && isObject
}

// asTree makes a tree of JSON of what YAML decodes to, and reports whether it can. Lists change in
// place.
func asTree(value any) (any, bool) {
	switch value := value.(type) {
	case nil, bool:
		return value, true
	case int:
		return int64(value), true
	case string:
		return value, utf8.ValidString(value)
	case []any:
		for i, item := range value {
			one, ok := asTree(item)
			if !ok {
				return nil, false
			}
			value[i] = one
		}
		return value, true
	case map[any]any:
		return asObject(value)
	}
	return nil, false
}

func asObject(from map[any]any) (podtree.Object, bool) {
	object := make(podtree.Object, len(from))
	for key, item := range from {
		name, isText := key.(string)
		one, ok := asTree(item)
		if !isText || !ok || !utf8.ValidString(name) {
			return nil, false
		}
		object[name] = one
	}
	return object, true
}
