package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const maxWarnings = 20

// message is a configuration of Istio's. Its JSON is read as Istio reads it: a duration may be
// 1m0s, a number may be in quotes, and null leaves a field as it is.
type message interface {
	proto.Message
	json.Unmarshaler
}

// applier sets fields key by key, so that all mistakes come at once.
type applier struct {
	message  message
	path     string         // in front of the keys in messages
	lost     map[string]any // pointers to the fields that the message has lost, by key
	warnings []string
}

func (a *applier) apply(tree map[string]any) error {
	var mistakes []error
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if err := a.set(key, tree[key]); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s%s: %w", a.path, key, err))
		}
	}
	return errors.Join(mistakes...)
}

func (a *applier) set(key string, value any) error {
	if value == nil {
		return nil
	}
	if field := a.lost[key]; field != nil {
		return setLost(field, value)
	}
	text, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		return err
	}
	a.warn(a.message.ProtoReflect().Descriptor(), map[string]any{key: value}, a.path)
	if err := a.message.UnmarshalJSON(text); err != nil {
		return explain(fieldOf(a.message.ProtoReflect().Descriptor(), key), value, err)
	}
	return nil
}

// warn names the keys that a message does not have, and those within; not more than maxWarnings.
func (a *applier) warn(of protoreflect.MessageDescriptor, tree map[string]any, path string) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		field := fieldOf(of, key)
		if field == nil && len(a.warnings) < maxWarnings {
			a.warnings = append(a.warnings,
				fmt.Sprintf("unknown key %.200q, it has no effect", path+key))
		}
		if field != nil {
			a.warnWithin(field, tree[key], path+key)
		}
	}
}

func (a *applier) warnWithin(field protoreflect.FieldDescriptor, value any, path string) {
	if field.IsMap() {
		entries, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			a.warnWithin(field.MapValue(), entries[key], path+"."+key)
		}
		return
	}
	inner := field.Message()
	if inner == nil || inner.ParentFile().Package() == "google.protobuf" {
		return // those have JSON of their own
	}
	switch value := value.(type) {
	case map[string]any:
		a.warn(inner, value, path+".")
	case []any:
		for i, item := range value {
			if object, ok := item.(map[string]any); ok {
				a.warn(inner, object, fmt.Sprintf("%s[%d].", path, i))
			}
		}
	}
}

// fieldOf returns the field that a key of JSON means: by its name there, or by the one in the
// message's definition.
func fieldOf(of protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if field := of.Fields().ByJSONName(key); field != nil {
		return field
	}
	return of.Fields().ByName(protoreflect.Name(key))
}
