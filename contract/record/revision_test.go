package record

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// Every field of every rule counts, whatever fields there will be: each is changed in turn.
func TestRevisionCountsEveryField(t *testing.T) {
	t.Parallel()
	full := func() *redirect.Ruleset {
		rs := &redirect.Ruleset{}
		fill(t, reflect.ValueOf(rs).Elem())
		return rs
	}
	first, second := Revision(*full()), Revision(*full())
	if first != second {
		t.Fatalf("a ruleset has two revisions, %s and %s", first, second)
	}
	seen := map[string]bool{first: true}
	n := count(reflect.ValueOf(full()).Elem())
	if n < 30 {
		t.Fatalf("%d fields only", n)
	}
	for i := range n {
		rs, left := full(), i
		change(t, reflect.ValueOf(rs).Elem(), &left)
		revision := Revision(*rs)
		if seen[revision] {
			t.Errorf("a change of field %d makes no difference: %+v", i, *rs)
		}
		seen[revision] = true
	}
}

// fill puts something into every field, and one item into every list.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[netip.Prefix]():
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	default:
		set(t, v, 1)
	}
}

func set(t *testing.T, v reflect.Value, to uint64) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("abc"[to : to+1])
	case reflect.Bool:
		v.SetBool(to == 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(to)
	default:
		t.Fatalf("a field of type %v", v.Type())
	}
}

func isLeaf(v reflect.Value) bool {
	return v.Type() == reflect.TypeFor[netip.Prefix]() ||
		v.Kind() != reflect.Struct && v.Kind() != reflect.Slice
}

func parts(v reflect.Value) []reflect.Value {
	var all []reflect.Value
	if v.Kind() == reflect.Slice {
		return append(all, v.Index(0))
	}
	for _, field := range v.Fields() {
		all = append(all, field)
	}
	return all
}

func count(v reflect.Value) int {
	if isLeaf(v) {
		return 1
	}
	n := 0
	for _, part := range parts(v) {
		n += count(part)
	}
	return n
}

// change gives the nth leaf another value.
func change(t *testing.T, v reflect.Value, nth *int) {
	t.Helper()
	if !isLeaf(v) {
		for _, part := range parts(v) {
			change(t, part, nth)
		}
		return
	}
	if *nth--; *nth != -1 {
		return
	}
	if v.Type() == reflect.TypeFor[netip.Prefix]() {
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/25")))
		return
	}
	set(t, v, 2)
}
