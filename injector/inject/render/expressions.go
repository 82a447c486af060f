package render

import (
	"errors"
	"reflect"
	"strings"
	"text/template/parse"
)

var (
	errTakesNone = errors.New("is no function: it takes no arguments")
	errNilAlone  = errors.New("nil can only be an argument")
)

// pipe evaluates commands, each of which gets the value of the one before as its last argument, and
// sets variables to the value of the last one.
func (s *scope) pipe(pipe *parse.PipeNode) (value reflect.Value, err error) {
	if pipe == nil {
		return value, nil
	}
	for i, command := range pipe.Cmds {
		var before *reflect.Value
		if i > 0 {
			before = &value
		}
		if value, err = s.command(command, before); err != nil {
			return value, err
		}
		if value.Kind() == reflect.Interface && value.NumMethod() == 0 {
			value = value.Elem()
		}
	}
	for _, variable := range pipe.Decl {
		if !pipe.IsAssign {
			s.declare(variable.Ident[0], value)
		} else if err := s.assign(variable.Ident[0], value); err != nil {
			return value, s.at(pipe, err)
		}
	}
	return value, nil
}

// command evaluates one command of a pipeline. The value of the one before it is nil for the first.
func (s *scope) command(
	command *parse.CommandNode, before *reflect.Value,
) (reflect.Value, error) {
	first := command.Args[0]
	if name, ok := first.(*parse.IdentifierNode); ok {
		return s.function(&invocation{name, command, command.Args[1:], before})
	}
	if _, ok := first.(*parse.NilNode); ok {
		return reflect.Value{}, s.at(first, errNilAlone)
	}
	return s.operand(first, len(command.Args) > 1 || before != nil)
}

// operand evaluates what is neither a function with arguments nor a constant of a wanted type.
// Nothing that is an operand takes arguments: withArguments says that there are some.
func (s *scope) operand(node parse.Node, withArguments bool) (value reflect.Value, err error) {
	if err := s.run.spend(1); err != nil {
		return value, s.at(node, err)
	}
	var names []string
	switch node := node.(type) {
	case *parse.FieldNode:
		value, names = s.dot, node.Ident
	case *parse.VariableNode:
		value, err = s.variable(node)
		names = node.Ident[1:]
	case *parse.ChainNode:
		value, err = s.operand(node.Node, false)
		names = node.Field
	case *parse.DotNode:
		value = s.dot
	case *parse.IdentifierNode:
		value, err = s.function(&invocation{name: node, node: node})
	case *parse.PipeNode:
		value, err = s.pipe(node)
	default:
		value, err = constant(node, nil)
	}
	if err != nil {
		return value, s.at(node, err)
	}
	if len(names) == 0 && withArguments {
		return value, s.at(node, errTakesNone)
	}
	for i, name := range names {
		if !value.IsValid() {
			return value, nil
		}
		if withArguments && i == len(names)-1 {
			return value, s.at(node, errTakesNone)
		}
		if value, err = s.run.lookup(value, name); err != nil {
			return value, s.at(node, err)
		}
	}
	return value, nil
}

func (s *scope) variable(node *parse.VariableNode) (reflect.Value, error) {
	v, err := s.find(node.Ident[0])
	if err != nil {
		return reflect.Value{}, err
	}
	return v.value, nil
}

// constant is the value of a constant as a parameter's type has it, or by Go's rules for constants
// without a type where that is nil or can hold anything.
func constant(node parse.Node, typ reflect.Type) (value reflect.Value, err error) {
	if typ == nil || typ.Kind() == reflect.Interface && typ.NumMethod() == 0 {
		return untyped(node)
	}
	value = reflect.New(typ).Elem()
	switch node := node.(type) {
	case *parse.BoolNode:
		if typ.Kind() == reflect.Bool {
			value.SetBool(node.True)
			return value, nil
		}
		return value, errWant(typ, "true or false")
	case *parse.StringNode:
		if typ.Kind() == reflect.String {
			value.SetString(node.Text)
			return value, nil
		}
		return value, errWant(typ, "text")
	case *parse.NumberNode:
		switch {
		case value.CanInt() && node.IsInt:
			value.SetInt(node.Int64)
		case value.CanUint() && node.IsUint:
			value.SetUint(node.Uint64)
		case value.CanFloat() && node.IsFloat:
			value.SetFloat(node.Float64)
		case value.CanComplex() && node.IsComplex:
			value.SetComplex(node.Complex128)
		default:
			return value, errWant(typ, "the number "+node.Text)
		}
		return value, nil
	}
	return value, errNoNode
}

// untyped is the value of a constant that nothing wants to be of some type.
func untyped(node parse.Node) (reflect.Value, error) {
	switch node := node.(type) {
	case *parse.BoolNode:
		return reflect.ValueOf(node.True), nil
	case *parse.StringNode:
		return reflect.ValueOf(node.Text), nil
	case *parse.NumberNode:
		switch {
		case node.IsComplex:
			return reflect.ValueOf(node.Complex128), nil
		case node.IsFloat && writtenAsFloat(node.Text):
			return reflect.ValueOf(node.Float64), nil
		case !node.IsInt || int64(int(node.Int64)) != node.Int64:
			return reflect.Value{}, errors.New("is too large a number")
		}
		return reflect.ValueOf(int(node.Int64)), nil
	}
	return reflect.Value{}, errNoNode
}

// writtenAsFloat tells 1e3 from 1000, and from 'e' and 0x1e.
func writtenAsFloat(text string) bool {
	switch lower := strings.ToLower(text); {
	case strings.HasPrefix(lower, "'"):
		return false
	case strings.HasPrefix(lower, "0x"):
		return strings.Contains(lower, "p")
	default:
		return strings.ContainsAny(lower, ".ep")
	}
}
