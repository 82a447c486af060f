package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"
)

const emptyObject = "{}"

// toJSON gives an object for a map that is not set, as Istio does, whose maps are those of text.
func toJSON(value any) (string, error) {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Map && v.IsNil() {
		return emptyObject, nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

func structToJSON(value any) (string, error) {
	if value == nil {
		return emptyObject, nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// protoToJSON returns the function of that name. Of a proxy's configuration it leaves out what is
// as in the defaults: it is an environment variable of every pod.
func protoToJSON(defaults *meshconfig.ProxyConfig) func(proto.Message) (string, error) {
	return func(message proto.Message) (string, error) {
		if message == nil {
			return emptyObject, nil
		}
		changed := message.ProtoReflect()
		if usual := defaults.ProtoReflect(); usual.Descriptor() == changed.Descriptor() {
			changed = withoutDefaults(changed, usual)
		}
		text, err := protojson.Marshal(changed.Interface())
		if err != nil {
			return "", err
		}
		// protojson puts spaces in or not, by the binary that it is linked into.
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			return "", err
		}
		return compact.String(), nil
	}
}

func withoutDefaults(message, defaults protoreflect.Message) protoreflect.Message {
	changed := proto.Clone(message.Interface()).ProtoReflect()
	defaults.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if changed.Has(field) && changed.Get(field).Equal(value) {
			changed.Clear(field)
		}
		return true
	})
	return changed
}

func toJSONMap(list ...map[string]string) (string, error) { return toJSON(mergeMaps(list...)) }

func fromJSON(text string) (any, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("want JSON: %w", err)
	}
	return value, nil
}

func toYAML(value any) (string, error) {
	text, err := yaml.Marshal(value)
	return string(text), err
}

func strdict(list ...string) map[string]string {
	dict := map[string]string{}
	for i, text := range list {
		if i%2 == 0 {
			dict[text] = ""
		} else {
			dict[list[i-1]] = text
		}
	}
	return dict
}

func mergeMaps(list ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, m := range list {
		maps.Copy(merged, m)
	}
	return merged
}

// omit is Istio's for maps of text, and sprig's for others.
func omit(m any, keys ...string) (any, error) {
	switch m := m.(type) {
	case nil:
		return map[string]string{}, nil
	case map[string]string:
		return without(m, keys), nil
	case map[string]any:
		return without(m, keys), nil
	}
	return nil, fmt.Errorf("want a map, got %T", m)
}

func without[V any](m map[string]V, keys []string) map[string]V {
	rest := make(map[string]V, len(m))
	maps.Copy(rest, m)
	for _, key := range keys {
		delete(rest, key)
	}
	return rest
}

// omitNil returns nil where nothing is left. What was empty before stays.
func omitNil(value any) any {
	switch value := value.(type) {
	case map[string]any:
		rest := make(map[string]any, len(value))
		for key, item := range value {
			if item = omitNil(item); item != nil {
				rest[key] = item
			}
		}
		if len(rest) == 0 && len(value) > 0 {
			return nil
		}
		return rest
	case []any:
		rest := make([]any, 0, len(value))
		for _, item := range value {
			if item = omitNil(item); item != nil {
				rest = append(rest, item)
			}
		}
		if len(rest) == 0 && len(value) > 0 {
			return nil
		}
		return rest
	}
	return value
}
