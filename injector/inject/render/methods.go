package render

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// zeroable is what times and amounts are.
type zeroable interface{ IsZero() bool }

// clustered are the two configurations of a proxy in package mesh.
type clustered interface{ ServiceCluster() string }

// finder returns a method of a receiver, ready to be called, or nil if the receiver has no such
// method. It does not call it: a call can be much work, which is counted before.
type finder func(receiver any) (method func() any)

// methods are those that templates can call beside getters, by their names: they read, and give the
// same answer twice. They are values of Go and not names for package reflect, with which the linker
// would keep every method of every type that is linked.
var methods = map[string]finder{
	"String": of(fmt.Stringer.String),
	"IsZero": of(zeroable.IsZero),

	"AsDuration":   of((*durationpb.Duration).AsDuration),
	"Abs":          of(time.Duration.Abs),
	"Hours":        of(time.Duration.Hours),
	"Minutes":      of(time.Duration.Minutes),
	"Seconds":      of(time.Duration.Seconds),
	"Milliseconds": of(time.Duration.Milliseconds),
	"Microseconds": of(time.Duration.Microseconds),
	"Nanoseconds":  of(time.Duration.Nanoseconds),

	"Cpu":              of((*corev1.ResourceList).Cpu),
	"Memory":           of((*corev1.ResourceList).Memory),
	"Pods":             of((*corev1.ResourceList).Pods),
	"Storage":          of((*corev1.ResourceList).Storage),
	"StorageEphemeral": of((*corev1.ResourceList).StorageEphemeral),
	"Value":            of((*resource.Quantity).Value),
	"MilliValue":       of((*resource.Quantity).MilliValue),

	"ServiceCluster": of(clustered.ServiceCluster),
}

func of[T, R any](function func(T) R) finder {
	return func(receiver any) func() any {
		typed, ok := receiver.(T)
		if !ok {
			return nil
		}
		return func() any { return function(typed) }
	}
}

// callMethod calls the method of that name, if it is one that templates can call.
func (r *run) callMethod(
	receiver reflect.Value, name string,
) (result reflect.Value, ok bool, err error) {
	find, known := methods[name]
	field, isGetter := strings.CutPrefix(name, "Get")
	if !known && !isGetter || !receiver.CanInterface() {
		return result, false, nil
	}
	result, err = safely(func() (reflect.Value, error) {
		if isGetter {
			result, ok = getter(receiver, field)
			return result, r.spend(callWork)
		}
		method := find(receiver.Interface())
		if method == nil {
			return result, nil
		}
		ok = true
		work := methodWork
		if name == "String" {
			if isMessage(receiver) {
				return result, errStructure
			}
			work += textWork(receiver)
		}
		if err := r.spend(work); err != nil {
			return result, err
		}
		return reflect.ValueOf(method()), nil
	})
	if err != nil && !isComplaint(err) {
		err = complain("method %s: %v", name, err)
	}
	return result, ok, err
}

// textWork is the work of String. It grows with the square, since Kubernetes' types append each
// item of a list to the text of those before it.
func textWork(receiver reflect.Value) int {
	if isNil(receiver) {
		return 0
	}
	pieces := min(sizeOf(receiver)/structPiece, maxWork)
	return pieces * pieces
}

// sizeOf is how many bytes a structure of the data has; 0 of what is none.
func sizeOf(v reflect.Value) int {
	v = concrete(v)
	if v.Kind() == reflect.Struct {
		v = addressOf(v)
	}
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return 0
	}
	switch structure := v.Interface().(type) {
	case proto.Message:
		return proto.Size(structure)
	case interface{ Size() int }:
		return structure.Size()
	}
	return 0
}

// getter is what Go's getter for a field gives: of messages, and of the metadata of objects. A
// message that is not set has the zero values.
func getter(receiver reflect.Value, name string) (reflect.Value, bool) {
	switch holder := receiver.Interface().(type) {
	case proto.Message:
		message := holder.ProtoReflect()
		// Not the receiver: what embeds a message has fields without getters.
		if value, ok := fieldOf(reflect.ValueOf(message.Interface()), name); ok {
			return scalar(value), true
		}
		return choice(message, name)
	case metav1.ObjectMetaAccessor:
		if !isNil(receiver) {
			return fieldOf(reflect.ValueOf(holder.GetObjectMeta()), name)
		}
	}
	return reflect.Value{}, false
}

// fieldOf is a field as a getter returns it: a copy. Of nil it is the zero value.
func fieldOf(pointer reflect.Value, name string) (value reflect.Value, ok bool) {
	if pointer.Kind() != reflect.Pointer || pointer.Type().Elem().Kind() != reflect.Struct {
		return value, false
	}
	field, ok := pointer.Type().Elem().FieldByName(name)
	if !ok || !field.IsExported() {
		return value, false
	}
	if pointer.IsNil() {
		return reflect.Zero(field.Type), true
	}
	return pointer.Elem().FieldByIndex(field.Index).Convert(field.Type), true
}

// scalar is what an optional scalar points to. Messages stay pointers.
func scalar(value reflect.Value) reflect.Value {
	if value.Kind() != reflect.Pointer || value.Type().Elem().Kind() == reflect.Struct {
		return value
	}
	if value.IsNil() {
		return reflect.Zero(value.Type().Elem())
	}
	return value.Elem().Convert(value.Type().Elem())
}

// choice is a field of a oneof, which in Go is a field of a wrapper that is there if it is set.
func choice(message protoreflect.Message, name string) (value reflect.Value, ok bool) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.ContainingOneof() == nil || goName(field.Name()) != name {
			continue
		}
		value := message.Get(field)
		switch field.Kind() {
		case protoreflect.MessageKind:
			return reflect.ValueOf(value.Message().Interface()), true
		case protoreflect.EnumKind:
			enum, err := protoregistry.GlobalTypes.FindEnumByName(field.Enum().FullName())
			if err != nil {
				return reflect.Value{}, false
			}
			return reflect.ValueOf(enum.New(value.Enum())), true
		default:
			return reflect.ValueOf(value.Interface()), true
		}
	}
	return value, false
}

// goName is what a field is called in Go. It knows the names that the mesh's types have.
func goName(name protoreflect.Name) string {
	var b strings.Builder
	for word := range strings.SplitSeq(string(name), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
