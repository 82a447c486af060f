package render

import (
	"errors"
	"fmt"
	"reflect"
)

// errStructure is about what has no text of its own. Go would print its fields, and of those that
// are pointers the addresses.
var errStructure = errors.New("a structure cannot be printed: name one of its fields, or use " +
	"toYaml or structToJSON")

// printed is called with every value that a template prints.
func printed(expression string, v reflect.Value) (any, error) {
	value, err := plain(v)
	if err != nil {
		return nil, bound("%s: %v", expression, err)
	}
	if value == nil {
		return nil, bound("%s is not set: set it, or give a default", expression)
	}
	return value, nil
}

// makePlain replaces arguments of any type by what can be printed of them.
func makePlain(args []reflect.Value) error {
	for i, arg := range args {
		if arg.Kind() != reflect.Interface || arg.IsNil() {
			continue
		}
		value, err := plain(arg)
		if err != nil {
			return err
		}
		replacement := reflect.Zero(arg.Type())
		if value != nil {
			replacement = reflect.ValueOf(value)
		}
		if arg.CanSet() {
			arg.Set(replacement)
			continue
		}
		settable := reflect.New(arg.Type()).Elem()
		settable.Set(replacement)
		args[i] = settable
	}
	return nil
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
		if text, ok := reflect.TypeAssert[fmt.Stringer](v); ok {
			return text.String(), nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		pointer := reflect.New(v.Type())
		pointer.Elem().Set(v)
		if text, ok := reflect.TypeAssert[fmt.Stringer](pointer); ok {
			return text.String(), nil
		}
		return nil, errStructure
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return nil, errStructure
	default:
		return v.Interface(), nil
	}
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
