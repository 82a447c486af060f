package render

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// The comparisons count long texts as work, and compare numbers of all types, where text/template
// tells 1 from 1.0.

func equalsAny(r *run, args []reflect.Value) (result reflect.Value, err error) {
	equal := false
	for _, other := range args[1:] {
		if equal, err = r.equal(args[0], other); equal || err != nil {
			break
		}
	}
	return reflect.ValueOf(equal), named("eq", err)
}

func differs(r *run, args []reflect.Value) (reflect.Value, error) {
	equal, err := r.equal(args[0], args[1])
	return reflect.ValueOf(!equal), named("ne", err)
}

func ordered(
	name string, fits func(order int) bool,
) func(r *run, args []reflect.Value) (reflect.Value, error) {
	return func(r *run, args []reflect.Value) (reflect.Value, error) {
		order, err := r.order(args[0], args[1])
		hasOrder := !isNaN(args[0]) && !isNaN(args[1])
		return reflect.ValueOf(hasOrder && fits(order)), named(name, err)
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
		return order == 0 && !isNaN(a), err
	case a.Kind() != b.Kind():
		return false, errIncomparable(a, b)
	case !a.Comparable() || !b.Comparable():
		return false, errIncomparable(a, b)
	}
	if err := r.spend(sizeOf(a) / textPiece); err != nil {
		return false, err
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

// isNaN reports whether a value is the number that nothing is equal to.
func isNaN(v reflect.Value) bool {
	v = concrete(v)
	return v.CanFloat() && math.IsNaN(v.Float())
}

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
