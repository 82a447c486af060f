package render

import (
	"reflect"
	"testing"
)

func TestFit(t *testing.T) {
	t.Parallel()
	number, none := 7, (*int)(nil)
	addressable := reflect.ValueOf(&number).Elem()
	pointer := reflect.TypeFor[*int]()
	if got, err := fit(addressable, pointer); err != nil || got.Interface() != any(&number) {
		t.Errorf("the address of a value: got %v, %v", got, err)
	}
	if got, err := fit(reflect.ValueOf(7), pointer); err == nil {
		t.Errorf("the address of what has none: got %v", got)
	}
	if got, err := fit(reflect.ValueOf(&number), addressable.Type()); err != nil || got.Int() != 7 {
		t.Errorf("what a pointer leads to: got %v, %v", got, err)
	}
	if got, err := fit(reflect.ValueOf(none), addressable.Type()); err == nil {
		t.Errorf("what nil leads to: got %v", got)
	}
	if got, err := fit(reflect.Value{}, pointer); err != nil || !got.IsNil() {
		t.Errorf("nil for a pointer: got %v, %v", got, err)
	}
}
