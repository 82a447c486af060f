package render

import (
	"errors"
	"fmt"
	"reflect"
)

// builtin is a function of the language itself, which takes values of any type as they are.
type builtin struct {
	least, most int // arguments; most is -1: any number
	do          func(r *run, args []reflect.Value) (reflect.Value, error)
}

// builtins are all of them but two: "and" and "or" do not evaluate all of their arguments.
var builtins = map[string]builtin{
	"not": {1, 1, func(_ *run, args []reflect.Value) (reflect.Value, error) {
		return reflect.ValueOf(!isTrue(args[0])), nil
	}},
	"len":   {1, 1, length},
	"index": {1, -1, index},
	"eq":    {2, -1, equalsAny},
	"ne":    {2, 2, differs},
	"lt":    {2, 2, ordered("lt", func(order int) bool { return order < 0 })},
	"le":    {2, 2, ordered("le", func(order int) bool { return order <= 0 })},
	"gt":    {2, 2, ordered("gt", func(order int) bool { return order > 0 })},
	"ge":    {2, 2, ordered("ge", func(order int) bool { return order >= 0 })},
}

var errLooksIntoNothing = errors.New(
	`looks into what is not set: set it, or ask for it with "if" or "with" first`)

// decide is and, and or: the first argument that decides is the result, or else the last one.
func (s *scope) decide(inv *invocation, decisive bool) (value reflect.Value, err error) {
	if err := inv.want(1, -1); err != nil {
		return value, s.at(inv.name, err)
	}
	for _, node := range inv.args {
		value, err = s.argument(node, nil)
		if err != nil {
			return value, s.at(node, err)
		}
		if isTrue(value) == decisive {
			return value, nil
		}
	}
	if inv.last != nil {
		value = *inv.last
	}
	return value, nil
}

// isTrue reports whether a value is set and not empty, nor 0, nor false. Structures are true.
func isTrue(v reflect.Value) bool {
	v = concrete(v)
	switch v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.String, reflect.Slice, reflect.Array, reflect.Map:
		return v.Len() > 0
	case reflect.Struct:
		return true
	default:
		return !v.IsZero()
	}
}

func length(_ *run, args []reflect.Value) (reflect.Value, error) {
	item, isNil := indirect(args[0])
	switch item.Kind() {
	case reflect.String, reflect.Slice, reflect.Array, reflect.Map:
		return reflect.ValueOf(item.Len()), nil
	default:
	}
	if isNil || !item.IsValid() {
		return item, errLooksIntoNothing
	}
	return item, fmt.Errorf("function len: want text, a list or a map, got %s", typeName(item))
}

// index looks into lists, texts and maps, with one index for each level.
func index(_ *run, args []reflect.Value) (reflect.Value, error) {
	item := args[0]
	if !concrete(item).IsValid() {
		return item, errLooksIntoNothing
	}
	for _, at := range args[1:] {
		inner, isNil := indirect(item)
		if isNil || !inner.IsValid() {
			return item, errLooksIntoNothing
		}
		var err error
		switch inner.Kind() {
		case reflect.String, reflect.Slice, reflect.Array:
			item, err = itemOf(inner, concrete(at))
		case reflect.Map:
			item, err = entryOf(inner, concrete(at))
		default:
			err = fmt.Errorf("want text, a list or a map, got %s", typeName(inner))
		}
		if err != nil {
			return item, fmt.Errorf("function index: %w", err)
		}
	}
	return item, nil
}

func itemOf(list, at reflect.Value) (reflect.Value, error) {
	switch {
	case at.CanInt():
		if n := at.Int(); n < 0 || n >= int64(list.Len()) {
			return at, fmt.Errorf("index out of range: %d", n)
		}
		return list.Index(int(at.Int())), nil
	case at.CanUint():
		if n := at.Uint(); n >= uint64(list.Len()) {
			return at, fmt.Errorf("index out of range: %d", n)
		}
		return list.Index(int(at.Uint())), nil
	}
	return at, fmt.Errorf("want a number as index, got %s", typeName(at))
}

// entryOf is the zero value where a map has no such key. A number as key can be of any such type.
func entryOf(m, key reflect.Value) (reflect.Value, error) {
	typ := m.Type().Key()
	switch {
	case !key.IsValid() && typ.Kind() == reflect.Interface:
		key = reflect.Zero(typ)
	case key.IsValid() && key.Type().AssignableTo(typ):
	case isWhole(key) && isWhole(reflect.Zero(typ)):
		key = key.Convert(typ)
	default:
		return key, fmt.Errorf("want a key of type %s, got %s", typ, typeName(key))
	}
	if entry := m.MapIndex(key); entry.IsValid() {
		return entry, nil
	}
	return reflect.Zero(m.Type().Elem()), nil
}

func isWhole(v reflect.Value) bool { return v.CanInt() || v.CanUint() }
