package render

import (
	"fmt"
	"reflect"
)

// lookup is the field, the entry or the result of the method of that name. Pointers are followed.
func (r *run) lookup(value reflect.Value, name string) (found reflect.Value, err error) {
	if err := r.spend(1); err != nil {
		return found, err
	}
	inner, isNil := indirect(value)
	if isNil && inner.Kind() == reflect.Interface {
		return found, errNotSet(name)
	}
	receivers := []reflect.Value{inner}
	if !isNil && inner.CanAddr() {
		receivers = []reflect.Value{inner.Addr(), inner}
	}
	for _, receiver := range receivers {
		if found, ok, err := r.callMethod(receiver, name); ok || err != nil {
			return found, err
		}
	}
	typ := inner.Type()
	if isNil {
		typ = typ.Elem()
	}
	switch typ.Kind() {
	case reflect.Struct:
		field, ok := typ.FieldByName(name)
		if !ok || !field.IsExported() {
			return found, errNoField(name)
		}
		if isNil {
			return found, errNotSet(name)
		}
		if found, err = inner.FieldByIndexErr(field.Index); err != nil {
			return found, errNotSet(name) // in a structure that is embedded by a pointer
		}
		return found, nil
	case reflect.Map:
		if isNil {
			return found, errNotSet(name)
		}
		if key := reflect.ValueOf(name); key.Type().AssignableTo(typ.Key()) {
			return inner.MapIndex(key), nil
		}
	default:
	}
	return found, errNoField(name)
}

func errNoField(name string) error {
	return fmt.Errorf("there is no field %q; docs/inject.md lists the fields", name)
}

func errNotSet(name string) error {
	return fmt.Errorf(`%q is looked up in what is not set: set it, or ask for it with "if" or `+
		`"with" first`, name)
}

// indirect follows pointers and interfaces to what is there, or to the first that is nil.
func indirect(v reflect.Value) (inner reflect.Value, isNil bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return v, true
		}
		v = v.Elem()
	}
	return v, false
}
