package render

import (
	"fmt"
	"reflect"
	"slices"
	"text/template"
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

	callWork     = 4   // of a function without costs of its own
	methodWork   = 300 // of String and the like
	structPiece  = 128 // bytes of a structure, squared: an item in its String
	textPiece    = 16  // bytes of text that are as much work as one item
	printedItem  = 24  // bytes that an item without text takes at most when it is printed
	widestEscape = 6   // bytes that one byte takes at most when it is quoted
)

// run keeps the books of one execution.
type run struct {
	data     Data
	work     int
	depth    int // of templates that call each other
	textWork int // of String on the largest structure there is; 0 before it is asked for
}

// bookkeeping are the functions that the walk has put into the text, and those that compare.
func (r *run) bookkeeping() template.FuncMap {
	functions := r.comparisons()
	functions[workName] = func(n, texts int) (string, error) {
		if texts > 0 && r.textWork == 0 { // few templates call String
			r.textWork = textWork(r.data)
		}
		return "", r.spend(n + texts*r.textWork)
	}
	functions[enterName] = r.enter
	functions[leaveName] = func() string { r.depth--; return "" }
	functions[printName] = printed
	return functions
}

func (r *run) enter() (string, error) {
	r.depth++
	if r.depth > maxCalls {
		return "", bound("templates call each other more than %d deep: end the recursion", maxCalls)
	}
	return "", nil
}

// spend counts work that is about to be done.
func (r *run) spend(work int) error {
	if work < 0 || work > maxWork-r.work {
		return bound("runs too long (over %d steps): shorten what it ranges over", maxWork)
	}
	r.work += work
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

// measure adds a value and all that is in it. It ends as soon as that is too much, and so it ends
// for a map that contains itself. Structures are the caller's data, of which no function makes
// more: each counts as one item.
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
		for _, item := range value {
			if err := s.measure(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case map[string]string:
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
			return s.add(v.Len(), 0)
		}
		for i := range v.Len() {
			if err := s.measure(v.Index(i).Interface(), depth+1); err != nil {
				return err
			}
		}
		return nil
	case reflect.Map:
		for iter := v.MapRange(); iter.Next(); {
			if err := s.measure(iter.Key().Interface(), depth+1); err != nil {
				return err
			}
			if err := s.measure(iter.Value().Interface(), depth+1); err != nil {
				return err
			}
		}
		return nil
	default:
		return s.add(1, 0)
	}
}

// callable is a function that a template names, ready to be bound to its executions.
type callable struct {
	function function
	name     string
	typ      reflect.Type // of what is bound: the function's own, and an error as second result
	original reflect.Value
}

// newCallable readies a function.
func newCallable(f function) callable {
	original := reflect.ValueOf(f.value)
	own := original.Type()
	in := slices.Collect(own.Ins())
	out := []reflect.Type{own.Out(0), reflect.TypeFor[error]()}
	return callable{f, f.doc.Name, reflect.FuncOf(in, out, own.IsVariadic()), original}
}

// bind returns the function for one execution.
func (c *callable) bind(r *run) reflect.Value {
	return reflect.MakeFunc(c.typ, func(args []reflect.Value) []reflect.Value {
		result, err := r.call(c, args)
		if err != nil {
			result = reflect.Zero(c.typ.Out(0))
			err = named(c.name, err)
			return []reflect.Value{result, reflect.ValueOf(&err).Elem()}
		}
		return []reflect.Value{result, reflect.Zero(c.typ.Out(1))}
	})
}

// call calls a function within the bounds.
func (r *run) call(c *callable, args []reflect.Value) (result reflect.Value, err error) {
	flat := flatten(args, c.typ.IsVariadic())
	if len(flat) > maxArguments {
		return result, fmt.Errorf("has %d arguments: want at most %d", len(flat), maxArguments)
	}
	if err := r.weigh(flat); err != nil {
		return result, err
	}
	if c.function.cost != nil {
		cost, err := c.function.cost(flat)
		if err != nil {
			return result, err
		}
		if err := r.spend(cost); err != nil {
			return result, err
		}
	}
	if c.function.printsText {
		if err := makePlain(flat); err != nil {
			return result, err
		}
	}
	if result, err = safely(c.original, args); err != nil {
		return result, err
	}
	return result, r.weigh([]reflect.Value{result})
}

// weigh counts arguments or a result as work, and refuses what is too large.
func (r *run) weigh(values []reflect.Value) error {
	var s size
	work := callWork
	for _, v := range values {
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if !v.IsValid() {
			continue
		}
		switch v.Kind() {
		case reflect.String:
			work += v.Len() / textPiece
			if err := s.add(1, v.Len()); err != nil {
				return err
			}
		case reflect.Map, reflect.Slice, reflect.Array:
			if err := s.measure(v.Interface(), 0); err != nil {
				return err
			}
		default:
			s.items++
		}
	}
	return r.spend(work + s.items)
}

// flatten returns the arguments with those of the variadic parameter in their places. Setting one
// of these changes what the function is given.
func flatten(args []reflect.Value, variadic bool) []reflect.Value {
	if !variadic {
		return args
	}
	last := args[len(args)-1]
	flat := append([]reflect.Value{}, args[:len(args)-1]...)
	for i := range last.Len() {
		flat = append(flat, last.Index(i))
	}
	return flat
}

// safely calls a function. Many of sprig's panic about what they do not accept.
func safely(f reflect.Value, args []reflect.Value) (result reflect.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	var out []reflect.Value
	if f.Type().IsVariadic() {
		out = f.CallSlice(args)
	} else {
		out = f.Call(args)
	}
	if len(out) == 2 && !out[1].IsNil() {
		return out[0], out[1].Interface().(error)
	}
	return out[0], nil
}
