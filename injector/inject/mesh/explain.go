package mesh

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// explain says what a field wants that did not take a value.
func explain(field protoreflect.FieldDescriptor, value any, err error) error {
	cause := strings.Join(strings.Fields(err.Error()), " ")
	switch {
	case field == nil:
		return fmt.Errorf("want what Istio reads: %.200s", cause)
	case field.IsMap():
		return fmt.Errorf("want values by name: %.200s", cause)
	case field.IsList():
		return fmt.Errorf("want a list, of %s each: %.200s", wanted(field), cause)
	}
	switch value.(type) {
	case map[string]any, []any:
		return fmt.Errorf("want %s: %.200s", wanted(field), cause)
	}
	return fmt.Errorf("want %s, got %.100q", wanted(field), fmt.Sprint(value))
}

// wanted is what a field, or each item of a list, can be.
func wanted(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.StringKind:
		return "text"
	case protoreflect.EnumKind:
		var names []string
		values := field.Enum().Values()
		for i := range values.Len() {
			names = append(names, string(values.Get(i).Name()))
		}
		return "one of " + strings.Join(names, ", ")
	case protoreflect.MessageKind:
		return wantedMessage(field.Message().FullName())
	default:
		return fmt.Sprintf("a number (%s)", field.Kind())
	}
}

func wantedMessage(name protoreflect.FullName) string {
	switch name {
	case "google.protobuf.Duration":
		return "a duration such as 45s"
	case "google.protobuf.BoolValue":
		return "true or false"
	case "google.protobuf.Int32Value", "google.protobuf.UInt32Value", "google.protobuf.Int64Value":
		return "a number"
	default:
		return "keys with values"
	}
}
