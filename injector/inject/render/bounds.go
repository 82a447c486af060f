package render

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"text/template/parse"
)

// The bounds of a template. Istio's own templates of all versions stay below a hundredth of them.
const (
	maxSource    = 256 << 10 // bytes of a template
	maxText      = 1 << 20   // bytes of what it yields, and of a single value
	maxItems     = 100_000   // in a single value, all levels together
	maxDepth     = 100       // levels of a single value
	maxNesting   = 200       // of the actions in the text
	maxCalls     = 100       // templates that call each other
	maxArguments = 1_000     // of a function
	maxWork      = 1 << 20   // nodes executed, items looked at and pieces of text made
	maxPattern   = 1_000     // bytes of a regular expression
	maxVersion   = 1_000     // bytes of a version and what it is compared with

	callWork      = 4   // of a function without costs of its own, and of a getter
	methodWork    = 300 // of String and the like
	structPiece   = 128 // bytes of a structure, squared: an item in its String
	textPiece     = 16  // bytes of text that are as much work as one item
	variablePiece = 16  // variables that are passed on the way to another one: as much work
)

// run keeps the books of one execution.
type run struct {
	name      string // of the template, for mistakes
	trees     map[string]*parse.Tree
	functions functionSet
	text      bytes.Buffer
	work      int
	depth     int // of templates that call each other
}

// spend counts work that is about to be done.
func (r *run) spend(work int) error {
	if work < 0 || work > maxWork-r.work {
		return complain("runs too long (over %d steps): shorten what it ranges over", maxWork)
	}
	r.work += work
	return nil
}

// write adds to the text.
func (r *run) write(text []byte) error {
	if r.text.Len()+len(text) > maxText {
		return complain("yields over %d bytes: shorten what it prints, or the data", maxText)
	}
	r.text.Write(text)
	return nil
}

// size is how much there is of a value.
type size struct {
	items int
	text  int // bytes
}

func (s *size) add(items, text int) error {
	s.items += items
	s.text += text
	switch {
	case s.items > maxItems:
		return fmt.Errorf("takes or yields over %d items: shorten the list", maxItems)
	case s.text > maxText:
		return fmt.Errorf("takes or yields over %d bytes: shorten the text", maxText)
	}
	return nil
}

// measure adds a value and all that is in it, as often as it is there. It ends as soon as that is
// too much, and so it ends for a map that contains itself. Structures are the caller's data, of
// which no function makes more: each counts as one item.
func (s *size) measure(value any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("takes or yields what nests over %d deep: flatten it", maxDepth)
	}
	switch value := value.(type) {
	case nil:
		return s.add(1, 0)
	case string:
		return s.add(1, len(value))
	case map[string]any:
		if err := s.add(1, 0); err != nil {
			return err
		}
		for key, item := range value {
			if err := s.add(1, len(key)); err != nil {
				return err
			}
			if err := s.measure(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if err := s.add(1, 0); err != nil {
			return err
		}
		for _, item := range value {
			if err := s.measure(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case map[string]string:
		if err := s.add(1, 0); err != nil {
			return err
		}
		for key, text := range value {
			if err := s.add(2, len(key)+len(text)); err != nil {
				return err
			}
		}
		return nil
	}
	return s.measureOther(reflect.ValueOf(value), depth)
}

// measureOther adds values of the rarer types.
func (s *size) measureOther(v reflect.Value, depth int) error {
	switch v.Kind() {
	case reflect.String:
		return s.add(1, v.Len())
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Interface, reflect.Slice, reflect.Map:
		default:
			return s.add(1+v.Len(), 0)
		}
		if err := s.add(1, 0); err != nil {
			return err
		}
		for i := range v.Len() {
			if err := s.measure(v.Index(i).Interface(), depth+1); err != nil {
				return err
			}
		}
		return nil
	case reflect.Map:
		if err := s.add(1, 0); err != nil {
			return err
		}
		for iter := v.MapRange(); iter.Next(); {
			if err := s.measure(iter.Key().Interface(), depth+1); err != nil {
				return err
			}
			if err := s.measure(iter.Value().Interface(), depth+1); err != nil {
				return err
			}
		}
		return nil
	case reflect.Pointer:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Struct {
			return s.add(1, 0)
		}
		return s.measure(v.Elem().Interface(), depth+1)
	case reflect.Complex64, reflect.Complex128:
		return s.add(2, 0)
	default:
		return s.add(1, 0)
	}
}

// arguments are those of a call, of the types of the function's parameters, those of a variadic
// parameter one by one.
type arguments struct {
	values []reflect.Value
	sizes  []size // of each value
}

// text is an argument that is text; empty if it is none.
func (a arguments) text(i int) string {
	if v := concrete(a.values[i]); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

// invoke calls a function within the bounds. Its arguments are weighed first, which ends for a map
// that contains itself; what they cost is asked of what the function is given, behind all pointers.
func (r *run) invoke(f function, values []reflect.Value) (result reflect.Value, err error) {
	if len(values) > maxArguments {
		return result, fmt.Errorf("has %d arguments: want at most %d", len(values), maxArguments)
	}
	sizes, err := r.weigh(values)
	if err != nil {
		return result, err
	}
	args := arguments{values, sizes}
	if f.printsText {
		if err := r.makePlain(args); err != nil {
			return result, err
		}
	}
	if f.cost != nil {
		cost, err := f.cost(args)
		if err != nil {
			return result, err
		}
		if err := r.spend(cost); err != nil {
			return result, err
		}
	}
	result, err = safely(func() (reflect.Value, error) {
		out := reflect.ValueOf(f.value).Call(values)
		if len(out) == 2 && !out[1].IsNil() {
			return out[0], out[1].Interface().(error)
		}
		return out[0], nil
	})
	if err != nil {
		return result, err
	}
	_, err = r.weigh([]reflect.Value{result})
	return result, err
}

// weigh counts arguments or a result as work, and refuses what is too large.
func (r *run) weigh(values []reflect.Value) ([]size, error) {
	var total size
	sizes := make([]size, len(values))
	for i, v := range values {
		if err := sizes[i].measureValue(concrete(v)); err != nil {
			return nil, err
		}
		if err := total.add(sizes[i].items, sizes[i].text); err != nil {
			return nil, err
		}
	}
	return sizes, r.spend(callWork + total.items + total.text/textPiece)
}

// measureValue is measure without a copy of what is a structure.
func (s *size) measureValue(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return s.measure(v.Interface(), 0)
	default:
		return s.measureOther(v, 0)
	}
}

// safely makes a mistake of a panic. Many of sprig's functions panic about what they do not accept,
// and some let Go do so.
func safely(do func() (reflect.Value, error)) (result reflect.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause := strings.TrimPrefix(fmt.Sprint(r), "runtime error: ")
			err = fmt.Errorf("does not accept what it is given: %s", cause)
		}
	}()
	return do()
}
