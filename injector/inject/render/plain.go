package render

import (
	"errors"
	"fmt"
	"reflect"
	"text/template/parse"

	"google.golang.org/protobuf/proto"
)

// errStructure is about what has no text of its own, or none that is the same everywhere. Go would
// print a structure's fields, and of those that are pointers the addresses. Protobuf puts spaces
// into a message's text or not, by the binary that it is linked into.
var errStructure = errors.New("a structure cannot be printed: name one of its fields, or use " +
	"toYaml or structToJSON")

// show writes the value of an expression.
func (r *run) show(expression *parse.PipeNode, v reflect.Value) error {
	if err := r.spend(workOfPlain(v)); err != nil {
		return err
	}
	if kind := concrete(v).Kind(); kind == reflect.Map || kind == reflect.Slice {
		if _, err := r.weigh([]reflect.Value{v}); err != nil {
			return aboutPrinted(expression, err)
		}
	}
	value, err := plain(v)
	if err != nil {
		return aboutPrinted(expression, err)
	}
	if value == nil {
		return complain("%s is not set: set it, or give a default", shorten(expression.String()))
	}
	return r.write(fmt.Append(nil, value))
}

// aboutPrinted says of which expression a mistake is.
func aboutPrinted(expression *parse.PipeNode, err error) error {
	if isComplaint(err) {
		return err
	}
	return complain("%s: %v", shorten(expression.String()), err)
}

// makePlain replaces arguments of any type by what can be printed of them.
func (r *run) makePlain(args arguments) error {
	for i, arg := range args.values {
		if arg.Kind() != reflect.Interface || arg.IsNil() {
			continue
		}
		if err := r.spend(workOfPlain(arg)); err != nil {
			return err
		}
		value, err := plain(arg)
		if err != nil {
			return err
		}
		args.values[i] = reflect.Zero(arg.Type())
		if value != nil {
			args.values[i] = reflect.ValueOf(value)
		}
		if text, ok := value.(string); ok {
			args.sizes[i] = size{1, len(text)}
		}
	}
	return nil
}

// workOfPlain is the work of the String that plain calls.
func workOfPlain(v reflect.Value) int {
	v = concrete(v)
	for v.Kind() == reflect.Pointer && !v.IsNil() && v.Type().Elem().Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		v = addressOf(v)
	}
	if v.Kind() != reflect.Pointer {
		return 0
	}
	return textWork(v)
}

// addressOf is the address of a copy.
func addressOf(v reflect.Value) reflect.Value {
	pointer := reflect.New(v.Type())
	pointer.Elem().Set(v)
	return pointer
}

// plain returns what is printed of a value: the same one, what a pointer leads to, or the text that
// it has for itself; nil for what is not set.
func plain(v reflect.Value) (any, error) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid:
		return nil, nil
	case reflect.Slice, reflect.Array, reflect.Map:
		return v.Interface(), plainItems(v)
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		if isMessage(v) {
			return nil, errStructure
		}
		if text, ok := reflect.TypeAssert[fmt.Stringer](v); ok {
			return text.String(), nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		pointer := addressOf(v)
		text, ok := reflect.TypeAssert[fmt.Stringer](pointer)
		if !ok || isMessage(pointer) {
			return nil, errStructure
		}
		return text.String(), nil
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return nil, errStructure
	default:
		return v.Interface(), nil
	}
}

func isMessage(v reflect.Value) bool {
	_, ok := reflect.TypeAssert[proto.Message](v)
	return ok
}

// plainItems reports whether all items of a list or a map can be printed as they are.
func plainItems(v reflect.Value) error {
	switch v.Type().Elem().Kind() {
	case reflect.Interface, reflect.Slice, reflect.Map, reflect.Array:
	case reflect.Pointer, reflect.Struct, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return errStructure
	default:
		return nil
	}
	items := make([]reflect.Value, 0, v.Len())
	if v.Kind() == reflect.Map {
		for iter := v.MapRange(); iter.Next(); {
			items = append(items, iter.Value())
		}
	} else {
		for i := range v.Len() {
			items = append(items, v.Index(i))
		}
	}
	for _, item := range items {
		if item.Kind() == reflect.Interface {
			item = item.Elem()
		}
		switch item.Kind() {
		case reflect.Pointer, reflect.Struct, reflect.Func, reflect.Chan, reflect.UnsafePointer:
			return errStructure
		case reflect.Slice, reflect.Map, reflect.Array:
			if err := plainItems(item); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}
