package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// converter makes the values of a tree what a type of Go wants, and finds out whether the decoder
// of JSON would take the tree. In doubt the decoder has to be asked; mostly there is none.
type converter struct {
	fields  map[reflect.Type]map[string]reflect.Type // as declared returns them
	texts   bool                                     // numbers and bools become texts
	unknown bool                                     // there was a field that its struct has not
	doubt   bool                                     // there was a value of another type
}

// convert returns a value as a type wants it. Lists and objects change in place.
func (c *converter) convert(value any, as reflect.Type) any {
	for as.Kind() == reflect.Pointer {
		as = as.Elem()
	}
	switch value := value.(type) {
	case nil: // leaves any field unset
	case podtree.Object:
		c.convertFields(value, as)
	case []any:
		if as.Kind() != reflect.Slice {
			c.doubt = true
			return value
		}
		for i := range value {
			value[i] = c.convert(value[i], as.Elem())
		}
	default:
		if as.Kind() == reflect.String && c.texts {
			return asText(value)
		}
		c.doubt = c.doubt || !decodes(value, as)
	}
	return value
}

func (c *converter) convertFields(object podtree.Object, as reflect.Type) {
	if as.Kind() == reflect.Map {
		for key, value := range object {
			object[key] = c.convert(value, as.Elem())
		}
		return
	}
	fields := c.fields[as]
	if fields == nil {
		c.doubt = true
		return
	}
	for name, value := range object {
		if field, ok := fields[name]; ok {
			object[name] = c.convert(value, field)
		} else {
			c.unknown = true
		}
	}
}

// decodes reports whether a text, number or bool is decoded into a type.
func decodes(value any, as reflect.Type) bool {
	switch as.Kind() {
	case reflect.String:
		_, ok := value.(string)
		return ok
	case reflect.Bool:
		_, ok := value.(bool)
		return ok
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		number, ok := value.(int64)
		return ok && !as.OverflowInt(number)
	case reflect.Struct: // such as a quantity
		own, ok := reflect.TypeAssert[json.Unmarshaler](reflect.New(as))
		data, err := json.Marshal(value)
		return ok && err == nil && own.UnmarshalJSON(data) == nil
	default:
		return false
	}
}

// declared is a table of the fields of all structs in what a template yields. It is made once,
// since reflection takes longer than the rest of the conversion. Structs that decode themselves are
// not in it.
var declared = sync.OnceValue(func() map[reflect.Type]map[string]reflect.Type {
	table := map[reflect.Type]map[string]reflect.Type{}
	declare(table, reflect.TypeFor[corev1.Pod]())
	declare(table, reflect.TypeFor[oldForm]())
	return table
})

// declare adds the structs of a type to the table. The fields of a struct that another one embeds
// are in JSON those of the other one.
func declare(table map[reflect.Type]map[string]reflect.Type, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		declare(table, t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if table[t] != nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	fields := map[string]reflect.Type{}
	table[t] = fields
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		declare(table, field.Type)
		if field.Anonymous && name == "" {
			maps.Copy(fields, table[field.Type])
		} else {
			fields[name] = field.Type
		}
	}
}

func asText(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case int64:
		return strconv.FormatInt(value, 10)
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
	}
	return fmt.Sprint(value)
}
