package render

import (
	"fmt"
	"reflect"
	"text/template/parse"
)

// invocation is a function with its arguments as the text has them.
type invocation struct {
	name *parse.IdentifierNode
	node parse.Node     // all of it
	args []parse.Node   // without the name
	last *reflect.Value // the argument that comes from the command before; nil: none
}

func (inv *invocation) count() int {
	if inv.last != nil {
		return len(inv.args) + 1
	}
	return len(inv.args)
}

// want says how many arguments there have to be. Without a most there can be any number.
func (inv *invocation) want(least, most int) error {
	const remedy = "; docs/inject.md has each function's arguments"
	switch n := inv.count(); {
	case most < 0 && n < least:
		return fmt.Errorf("wrong number of args for %s: want at least %d got %d"+remedy,
			inv.name.Ident, least, n)
	case most >= 0 && (n < least || n > most):
		return fmt.Errorf("wrong number of args for %s: want %d got %d"+remedy,
			inv.name.Ident, least, n)
	}
	return nil
}

// function evaluates the arguments of a function and calls it.
func (s *scope) function(inv *invocation) (result reflect.Value, err error) {
	if err := s.run.spend(inv.count()); err != nil {
		return result, s.at(inv.name, err)
	}
	name := inv.name.Ident
	if name == "and" || name == "or" {
		return s.decide(inv, name == "or")
	}
	if known, ok := builtins[name]; ok {
		ofAnyType := func(int) reflect.Type { return nil }
		args, err := s.arguments(inv, ofAnyType, known.least, known.most)
		if err != nil {
			return result, err
		}
		result, err = known.do(s.run, args)
		return result, s.at(inv.node, err)
	}
	f := s.run.functions[name]
	typ := reflect.TypeOf(f.value)
	least, most := typ.NumIn(), typ.NumIn()
	if typ.IsVariadic() {
		least, most = typ.NumIn()-1, -1
	}
	parameter := func(i int) reflect.Type {
		if typ.IsVariadic() && i >= least {
			return typ.In(least).Elem()
		}
		return typ.In(i)
	}
	args, err := s.arguments(inv, parameter, least, most)
	if err != nil {
		return result, err
	}
	result, err = s.run.invoke(f, args)
	return result, s.at(inv.node, named(name, err))
}

// arguments evaluates all arguments, each for the type of its parameter, of which nil is any.
func (s *scope) arguments(
	inv *invocation, parameter func(int) reflect.Type, least, most int,
) ([]reflect.Value, error) {
	if err := inv.want(least, most); err != nil {
		return nil, s.at(inv.name, err)
	}
	args := make([]reflect.Value, 0, inv.count())
	for i, node := range inv.args {
		value, err := s.argument(node, parameter(i))
		if err != nil {
			return nil, s.at(node, err)
		}
		args = append(args, value)
	}
	if inv.last != nil {
		value, err := fit(*inv.last, parameter(len(args)))
		if err != nil {
			return nil, s.at(inv.name, err)
		}
		args = append(args, value)
	}
	return args, nil
}

// argument evaluates one argument for a parameter of some type.
func (s *scope) argument(node parse.Node, typ reflect.Type) (reflect.Value, error) {
	switch node.(type) {
	case *parse.NilNode:
		return fit(reflect.Value{}, typ)
	case *parse.BoolNode, *parse.NumberNode, *parse.StringNode:
		value, err := constant(node, typ)
		if err != nil {
			return value, err
		}
		return fit(value, typ)
	}
	value, err := s.operand(node, false)
	if err != nil {
		return value, err
	}
	return fit(value, typ)
}

// fit returns a value as a parameter of some type takes it, following one pointer or taking one
// address if it has to. What a parameter takes that is an interface can be set.
func fit(value reflect.Value, typ reflect.Type) (reflect.Value, error) {
	if typ == nil {
		return value, nil
	}
	if !value.IsValid() {
		switch typ.Kind() {
		case reflect.Interface, reflect.Map, reflect.Slice, reflect.Pointer, reflect.Func,
			reflect.Chan:
			return reflect.Zero(typ), nil
		default:
			return value, errWant(typ, "what is not set")
		}
	}
	if !value.Type().AssignableTo(typ) && value.Kind() == reflect.Interface && !value.IsNil() {
		value = value.Elem()
	}
	switch have := value.Type(); {
	case have.AssignableTo(typ):
	case have.Kind() == reflect.Pointer && have.Elem().AssignableTo(typ):
		if value.IsNil() {
			return value, errWant(typ, "a pointer that is not set")
		}
		value = value.Elem()
	case value.CanAddr() && reflect.PointerTo(have).AssignableTo(typ):
		value = value.Addr()
	default:
		return value, errWant(typ, have.String())
	}
	if typ.Kind() != reflect.Interface {
		return value, nil
	}
	settable := reflect.New(typ).Elem()
	settable.Set(value)
	return settable, nil
}

func errWant(typ reflect.Type, got string) error {
	return fmt.Errorf("want a value of type %s, got %s", typ, got)
}
