package render

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unsupported are the getters of the data's types that templates cannot call.
var unsupported = []string{
	"FieldsV1.GetRawBytes", "FieldsV1.GetRawReader", "FieldsV1.GetRawString", // left out with the times
	"ObjectMeta.GetObjectMeta",                    // it is that itself
	"PersistentVolumeClaimTemplate.GetObjectMeta", // its field ObjectMeta
	"TypeMeta.GetObjectKind",                      // it changes with what it belongs to
}

// Each getter of a type that data can reach gives what Go's own method gives, and so does each
// other method that templates can call.
func TestMethodsGiveWhatGoGives(t *testing.T) {
	t.Parallel()
	tried, refused := 0, map[string]bool{}
	for _, typ := range reached() {
		if typ.Kind() == reflect.Interface {
			continue
		}
		for _, receiver := range receivers(t, typ) {
			for m := range receiver.Type().Methods() {
				if m.Type.NumIn() != 1 || m.Type.NumOut() != 1 {
					continue
				}
				if agree(t, receiver, m.Name) {
					tried++
				} else if strings.HasPrefix(m.Name, "Get") || m.Name == "String" {
					refused[typ.Name()+"."+m.Name] = true
				}
			}
		}
	}
	if tried < 1000 {
		t.Errorf("tried %d calls only", tried)
	}
	for _, name := range unsupported {
		if !refused[name] {
			t.Errorf("%s can be called, or there is no such method", name)
		}
		delete(refused, name)
	}
	if len(refused) > 0 {
		t.Errorf("templates cannot call %v", sortedKeys(refused))
	}
}

// agree reports whether a template can call a method. If so, it gives what Go gives.
func agree(t *testing.T, receiver reflect.Value, name string) bool {
	t.Helper()
	got, ok, err := (&run{}).callMethod(receiver, name)
	if name == "String" && isMessage(receiver) {
		if err == nil || !strings.HasSuffix(err.Error(), errStructure.Error()) {
			t.Errorf("String of the message %s: got %v", receiver.Type(), err)
		}
		return true
	}
	if err != nil {
		t.Errorf("%s of %s: %v", name, receiver.Type(), err)
	}
	if !ok {
		return false
	}
	want := receiver.MethodByName(name).Call(nil)[0]
	if !got.IsValid() || got.Type() != want.Type() && got.Type() != concrete(want).Type() ||
		got.CanAddr() || !reflect.DeepEqual(got.Interface(), want.Interface()) {
		t.Errorf("%s of %s %+v: got %s, want %s", name, receiver.Type(), receiver, got, want)
	}
	return true
}

// receivers are values of a type: nil and empty ones, and such with something in each field.
func receivers(t *testing.T, typ reflect.Type) []reflect.Value {
	t.Helper()
	empty, filled := reflect.New(typ), reflect.New(typ)
	fill(filled.Elem(), 3)
	list := []reflect.Value{empty, filled}
	message, ok := reflect.TypeAssert[proto.Message](empty)
	if !ok {
		return list
	}
	reflected := message.ProtoReflect()
	embeds := reflect.TypeOf(reflected.Interface()) != empty.Type()
	list = list[:1]
	if !embeds {
		list = append(list, reflect.Zero(empty.Type()))
	}
	for i := range reflected.Descriptor().Fields().Len() {
		field := reflected.Descriptor().Fields().Get(i)
		one := reflected.Type().New()
		setField(one, field)
		holder := reflect.ValueOf(one.Interface())
		if embeds {
			holder = embedding(typ, holder)
		}
		list = append(list, holder)
	}
	return list
}

// embedding is a structure of a type with the message where it embeds one, however deep.
func embedding(typ reflect.Type, message reflect.Value) reflect.Value {
	holder := reflect.New(typ)
	for field := range typ.Fields() {
		switch {
		case !field.Anonymous:
		case field.Type == message.Type():
			holder.Elem().FieldByIndex(field.Index).Set(message)
		case field.Type.Kind() == reflect.Pointer:
			holder.Elem().FieldByIndex(field.Index).Set(embedding(field.Type.Elem(), message))
		}
	}
	return holder
}

// setField gives a field a value that is not its default.
func setField(message protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		key := protoreflect.ValueOfString("k").MapKey()
		entries := message.Mutable(field).Map()
		entries.Set(key, one(field.MapValue(), entries.NewValue))
	case field.IsList():
		list := message.Mutable(field).List()
		list.Append(one(field, list.NewElement))
	default:
		message.Set(field, one(field, func() protoreflect.Value { return message.NewField(field) }))
	}
}

// one is a value of a field, or of an item of it.
func one(field protoreflect.FieldDescriptor, empty func() protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return empty()
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(values.Len() - 1).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1.5)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1.5)
	default:
		number := reflect.ValueOf(7).Convert(reflect.TypeOf(empty().Interface()))
		return protoreflect.ValueOf(number.Interface())
	}
}

// fill puts something into each field.
func fill(v reflect.Value, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Map:
		key, item := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(item, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, item)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, depth-1)
		}
	default:
	}
}

// reached are the types of the data and of all that can be reached from it, and those of what
// methods give.
func reached() []reflect.Type {
	seen := map[reflect.Type]bool{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Data](), reflect.TypeFor[fields](), reflect.TypeFor[time.Duration](),
	} {
		collect(typ, seen)
	}
	list := []reflect.Type{}
	for typ := range seen {
		if typ.Kind() != reflect.Pointer && typ.Name() != "" {
			list = append(list, typ)
		}
	}
	slices.SortFunc(list, func(a, b reflect.Type) int {
		return strings.Compare(a.String(), b.String())
	})
	return list
}

// collect finds the types that can be reached from a type.
func collect(typ reflect.Type, seen map[reflect.Type]bool) {
	if seen[typ] {
		return
	}
	seen[typ] = true
	with := typ
	if typ.Kind() != reflect.Interface && typ.Kind() != reflect.Pointer {
		with = reflect.PointerTo(typ)
	}
	for method := range with.Methods() {
		if strings.HasPrefix(method.Name, "Get") && method.Type.NumOut() > 0 {
			collect(method.Type.Out(0), seen)
		}
	}
	switch typ.Kind() {
	case reflect.Struct:
		for field := range typ.Fields() {
			if field.IsExported() {
				collect(field.Type, seen)
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collect(typ.Elem(), seen)
	default:
	}
}

// What a template can call has to be a method of something that it can reach.
func TestEveryMethodIsReached(t *testing.T) {
	t.Parallel()
	for _, name := range sortedKeys(methods) {
		found := slices.ContainsFunc(reached(), func(typ reflect.Type) bool {
			if typ.Kind() == reflect.Interface {
				return false
			}
			_, ok, _ := (&run{}).callMethod(reflect.New(typ), name)
			_, byValue, _ := (&run{}).callMethod(reflect.Zero(typ), name)
			return ok || byValue
		})
		if !found {
			t.Errorf("nothing has method %s", name)
		}
	}
}

// Ranges go over maps in the order of the keys, of which these are the types.
func TestKeysOfMapsHaveAnOrder(t *testing.T) {
	t.Parallel()
	for _, typ := range reached() {
		if typ.Kind() == reflect.Map && !isOrdered(reflect.Zero(typ.Key())) {
			t.Errorf("%s: a range cannot put its keys into an order", typ)
		}
	}
}

func TestMethodsInTemplates(t *testing.T) {
	t.Parallel()
	data := sample(t)
	data.Values["Size"], data.Values["Reset"] = "a key", "another"
	data.Spec.SecurityContext = &corev1.PodSecurityContext{}
	data.ObjectMeta.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	for text, want := range map[string]string{
		".Values.Size":                                          "a key",
		".Values.Reset":                                         "another",
		".ObjectMeta.GetLabels.app":                             "sleep",
		".ObjectMeta.GetOwnerReferences | len":                  "1",
		".ProxyConfig.DrainDuration.AsDuration.Seconds":         "45",
		".ProxyConfig.GetDrainDuration.AsDuration.Milliseconds": "45000",
		".ProxyConfig.GetTerminationDrainDuration.GetSeconds":   "5",
		".ProxyConfig.ServiceCluster":                           "istio-proxy",
		".ProxyConfig.GetServiceCluster":                        "istio-proxy",
		".ProxyConfig.GetTracing.GetZipkin.GetAddress":          "",
		".ProxyConfig.GetTracingServiceName":                    "APP_LABEL_AND_NAMESPACE",
		".MeshConfig.GetDefaultConfig.GetConcurrency.GetValue":  "2",
		".MeshConfig.GetEnableTracing":                          "true",
		"len .Spec.SecurityContext.String | lt 10":              "true",
	} {
		if got := mustExecute(t, "{{ "+text+" }}", Today, data); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for _, name := range []string{"GetFoo", "Getconcurrency", "GetConnectTimeout", "Get", "Reset",
		"ProtoReflect", "Marshal", "GetTracing.Descriptor", "GetTracing.getZipkin"} {
		out, err := execute(t, fmt.Sprintf("{{ .ProxyConfig.%s }}", name), Today, data)
		if err == nil || !strings.Contains(err.Error(), "there is no field") {
			t.Errorf("%s: got %q, %v", name, out, err)
		}
	}
}
