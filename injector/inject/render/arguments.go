package render

import (
	"fmt"
	"reflect"
	"text/template/parse"
)

// call is a function with its arguments as the text has them.
type call struct {
	name *parse.IdentifierNode
	node parse.Node     // all of it
	args []parse.Node   // without the name
	last *reflect.Value // the argument that comes from the command before; nil: none
}

func (c *call) count() int {
	if c.last != nil {
		return len(c.args) + 1
	}
	return len(c.args)
}

// want says how many arguments there have to be. Without a most there can be any number.
func (c *call) want(least, most int) error {
	const remedy = "; docs/inject.md has each function's arguments"
	switch n := c.count(); {
	case most < 0 && n < least:
		return fmt.Errorf("wrong number of args for %s: want at least %d got %d"+remedy,
			c.name.Ident, least, n)
	case most >= 0 && (n < least || n > most):
		return fmt.Errorf("wrong number of args for %s: want %d got %d"+remedy,
			c.name.Ident, least, n)
	}
	return nil
}

// function evaluates the arguments of a function and calls it.
func (s *scope) function(c *call) (result reflect.Value, err error) {
	if err := s.run.spend(c.count()); err != nil {
		return result, s.at(c.name, err)
	}
	name := c.name.Ident
	if name == "and" || name == "or" {
		return s.decide(c, name == "or")
	}
	if own, ok := builtins[name]; ok {
		args, err := s.arguments(c, func(int) reflect.Type { return nil }, own.least, own.most)
		if err != nil {
			return result, err
		}
		result, err = own.call(s.run, args)
		return result, s.at(c.node, err)
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
	args, err := s.arguments(c, parameter, least, most)
	if err != nil {
		return result, err
	}
	result, err = s.run.call(f, args)
	return result, s.at(c.node, named(name, err))
}

// arguments evaluates all arguments, each for the type of its parameter, of which nil is any.
func (s *scope) arguments(
	c *call, parameter func(int) reflect.Type, least, most int,
) ([]reflect.Value, error) {
	if err := c.want(least, most); err != nil {
		return nil, s.at(c.name, err)
	}
	args := make([]reflect.Value, 0, c.count())
	for i, node := range c.args {
		value, err := s.argument(node, parameter(i))
		if err != nil {
			return nil, s.at(node, err)
		}
		args = append(args, value)
	}
	if c.last != nil {
		value, err := fit(*c.last, parameter(len(args)))
		if err != nil {
			return nil, s.at(c.name, err)
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
	switch own := value.Type(); {
	case own.AssignableTo(typ):
	case own.Kind() == reflect.Pointer && own.Elem().AssignableTo(typ):
		if value.IsNil() {
			return value, errWant(typ, "a pointer that is not set")
		}
		value = value.Elem()
	case value.CanAddr() && reflect.PointerTo(own).AssignableTo(typ):
		value = value.Addr()
	default:
		return value, errWant(typ, own.String())
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
