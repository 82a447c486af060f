package render

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The list of methods that templates cannot call has to name each method of the data's types that
// is not known to only read. A name that is a field's too cannot be on it: none of those changes
// anything that is the mesh's.
func TestEveryMethodIsAllowedOrRefused(t *testing.T) {
	t.Parallel()
	methods, names := map[string]string{}, map[string]bool{}
	seen := map[reflect.Type]bool{}
	for _, typ := range []reflect.Type{reflect.TypeFor[Data](), reflect.TypeFor[fields]()} {
		collect(typ, seen, methods, names)
	}
	if len(methods) < 100 {
		t.Fatalf("found %d methods only", len(methods))
	}
	shared := []string{"Add", "Format", "Name", "Type", "Value"}
	for method, typ := range methods {
		isRead := strings.HasPrefix(method, "Get") || slices.Contains(readingMethods, method) ||
			slices.Contains(shared, method)
		if isRead == refusedMethods[method] {
			t.Errorf("method %s of %s: allowed is %v, refused is %v", method, typ, isRead,
				refusedMethods[method])
		}
	}
	for name := range names {
		if refusedMethods[name] {
			t.Errorf("field %s cannot be read: a method has its name", name)
		}
	}
}

// collect finds the methods and the fields of a type and of all that can be reached from it.
func collect(
	typ reflect.Type, seen map[reflect.Type]bool, methods map[string]string, names map[string]bool,
) {
	if seen[typ] {
		return
	}
	seen[typ] = true
	with := typ
	if typ.Kind() != reflect.Interface && typ.Kind() != reflect.Pointer {
		with = reflect.PointerTo(typ)
	}
	for method := range with.Methods() {
		if !method.IsExported() {
			continue
		}
		methods[method.Name] = with.String()
		if strings.HasPrefix(method.Name, "Get") && method.Type.NumOut() > 0 {
			collect(method.Type.Out(0), seen, methods, names)
		}
	}
	switch typ.Kind() {
	case reflect.Struct:
		for field := range typ.Fields() {
			if field.IsExported() {
				names[field.Name] = true
				collect(field.Type, seen, methods, names)
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		collect(typ.Elem(), seen, methods, names)
	case reflect.Map:
		collect(typ.Elem(), seen, methods, names)
	default:
	}
}
