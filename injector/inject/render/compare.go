package render

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"text/template"
)

var errFewArguments = errors.New("want two values to compare")

// comparisons stand in for those of text/template, which compare long texts without counting it as
// work. They compare numbers of all types, where text/template tells 1 from 1.0.
func (r *run) comparisons() template.FuncMap {
	ordered := func(name string, fits func(order int) bool) any {
		return func(a, b reflect.Value) (bool, error) {
			order, err := r.order(a, b)
			if err != nil {
				return false, named(name, err)
			}
			return fits(order), nil
		}
	}
	return template.FuncMap{
		"eq": func(a reflect.Value, others ...reflect.Value) (bool, error) {
			if len(others) == 0 {
				return false, named("eq", errFewArguments)
			}
			for _, b := range others {
				if equal, err := r.equal(a, b); equal || err != nil {
					return equal, named("eq", err)
				}
			}
			return false, nil
		},
		"ne": func(a, b reflect.Value) (bool, error) {
			equal, err := r.equal(a, b)
			return !equal, named("ne", err)
		},
		"lt": ordered("lt", func(order int) bool { return order < 0 }),
		"le": ordered("le", func(order int) bool { return order <= 0 }),
		"gt": ordered("gt", func(order int) bool { return order > 0 }),
		"ge": ordered("ge", func(order int) bool { return order >= 0 }),
	}
}

// equal compares two values. What is not set is equal to nothing but what is not set.
func (r *run) equal(a, b reflect.Value) (bool, error) {
	a, b = concrete(a), concrete(b)
	switch {
	case isNil(a) || isNil(b):
		return isNil(a) && isNil(b), nil
	case isOrdered(a) && isOrdered(b):
		order, err := r.order(a, b)
		return order == 0, err
	case a.Kind() != b.Kind():
		return false, errIncomparable(a, b)
	case !a.Comparable() || !b.Comparable():
		return false, errIncomparable(a, b)
	}
	return a.Interface() == b.Interface(), nil
}

// order says which of two texts or numbers comes first.
func (r *run) order(a, b reflect.Value) (int, error) {
	a, b = concrete(a), concrete(b)
	switch {
	case a.Kind() == reflect.String && b.Kind() == reflect.String:
		err := r.spend((a.Len() + b.Len()) / textPiece)
		return strings.Compare(a.String(), b.String()), err
	case !isNumber(a) || !isNumber(b):
		return 0, errIncomparable(a, b)
	case a.CanInt() && b.CanInt():
		return cmp.Compare(a.Int(), b.Int()), nil
	case a.CanUint() && b.CanUint():
		return cmp.Compare(a.Uint(), b.Uint()), nil
	}
	return cmp.Compare(float(a), float(b)), nil
}

func errIncomparable(a, b reflect.Value) error {
	return fmt.Errorf("cannot compare %s with %s", typeName(a), typeName(b))
}

func typeName(v reflect.Value) string {
	if !v.IsValid() {
		return "what is not set"
	}
	return v.Type().String()
}

func concrete(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Map, reflect.Slice, reflect.Pointer, reflect.Func, reflect.Chan:
		return v.IsNil()
	default:
		return false
	}
}

func isNumber(v reflect.Value) bool { return v.CanInt() || v.CanUint() || v.CanFloat() }

func isOrdered(v reflect.Value) bool { return v.Kind() == reflect.String || isNumber(v) }

func float(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// named says which function did not accept its arguments.
func named(name string, err error) error {
	if err == nil || isBound(err) {
		return err
	}
	return &callError{name, err}
}
