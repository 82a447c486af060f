package render

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"text/template/parse"
)

// scope is what the nodes of a block see. The scope of a block within is a copy: the variables that
// it declares end with it, and those that it assigns to are the same.
//
// A value that is not valid stands for what is not set.
type scope struct {
	run       *run
	tree      *parse.Tree
	dot       reflect.Value
	variables *variable // the one that was declared last
}

// variable is a variable and those that were declared before it.
type variable struct {
	name   string // with the $
	value  reflect.Value
	before *variable
}

// flow says how a list of nodes was left.
type flow int

const (
	atEnd flow = iota
	byContinue
	byBreak
)

var errNoNode = errors.New("cannot be executed")

// template executes a tree with its data.
func (r *run) template(tree *parse.Tree, dot reflect.Value) error {
	s := scope{run: r, tree: tree, dot: dot}
	s.declare("$", dot)
	_, err := s.list(tree.Root)
	return err
}

func (s *scope) list(list *parse.ListNode) (flow, error) {
	if list == nil {
		return atEnd, nil
	}
	for _, node := range list.Nodes {
		if left, err := s.node(node); left != atEnd || err != nil {
			return left, err
		}
	}
	return atEnd, nil
}

func (s *scope) node(node parse.Node) (flow, error) {
	if err := s.run.spend(1); err != nil {
		return atEnd, s.at(node, err)
	}
	switch node := node.(type) {
	case *parse.TextNode:
		return atEnd, s.at(node, s.run.write(node.Text))
	case *parse.ActionNode:
		return atEnd, s.action(node)
	case *parse.IfNode:
		return s.branch(&node.BranchNode)
	case *parse.WithNode:
		return s.branch(&node.BranchNode)
	case *parse.RangeNode:
		return s.loop(node)
	case *parse.TemplateNode:
		return atEnd, s.callTemplate(node)
	case *parse.BreakNode:
		return byBreak, nil
	case *parse.ContinueNode:
		return byContinue, nil
	}
	return atEnd, s.at(node, errNoNode)
}

// action prints the value of an expression, unless that goes to a variable.
func (s *scope) action(node *parse.ActionNode) error {
	value, err := s.pipe(node.Pipe)
	if err != nil || len(node.Pipe.Decl) > 0 {
		return err
	}
	_, err = safely(func() (reflect.Value, error) {
		return reflect.Value{}, s.run.show(node.Pipe, value)
	})
	return s.at(node, err)
}

// branch executes if and with. A variable of the condition lives in both lists.
func (s *scope) branch(node *parse.BranchNode) (flow, error) {
	inner := *s
	value, err := inner.pipe(node.Pipe)
	if err != nil {
		return atEnd, err
	}
	if !isTrue(value) {
		return inner.list(node.ElseList)
	}
	if node.NodeType == parse.NodeWith {
		inner.dot = value
	}
	return inner.list(node.List)
}

// callTemplate executes a template by its name. It sees none of the caller's variables.
func (s *scope) callTemplate(node *parse.TemplateNode) error {
	dot, err := s.pipe(node.Pipe)
	if err != nil {
		return err
	}
	s.run.depth++
	defer func() { s.run.depth-- }()
	if s.run.depth > maxCalls {
		return s.at(node, complain("templates call each other more than %d deep: end the recursion",
			maxCalls))
	}
	return s.run.template(s.run.trees[node.Name], dot)
}

// loop executes range. Its variables exist from the expression on: where there is nothing to range
// over, the other list sees the expression's value in them, and a break there ends this loop alone.
func (s *scope) loop(node *parse.RangeNode) (flow, error) {
	inner := *s
	value, err := inner.pipe(node.Pipe)
	if err != nil {
		return atEnd, err
	}
	items, count, err := inner.items(value, len(node.Pipe.Decl))
	if err != nil {
		return atEnd, s.at(node.Pipe, err)
	}
	if count == 0 {
		left, err := inner.list(node.ElseList)
		if left == byBreak {
			left = atEnd
		}
		return left, err
	}
	for key, item := range items {
		left, err := inner.round(node, key, item)
		if left == byBreak || err != nil {
			return atEnd, err
		}
	}
	return atEnd, nil
}

// round executes the list of a range for one item.
func (s *scope) round(node *parse.RangeNode, key, item reflect.Value) (flow, error) {
	if err := s.run.spend(1); err != nil {
		return atEnd, s.at(node, err)
	}
	inner := *s
	inner.dot = item
	values := []reflect.Value{key, item}
	names := node.Pipe.Decl // one is the item's
	for i, name := range names {
		if err := inner.assign(name.Ident[0], values[i+2-len(names)]); err != nil {
			return atEnd, s.at(node, err)
		}
	}
	return inner.list(node.List)
}

// items are what a range goes over, and how many there are; of numbers, 1 if there are any.
func (s *scope) items(
	value reflect.Value, variables int,
) (items func(func(key, item reflect.Value) bool), count int, err error) {
	value, _ = indirect(value)
	switch kind := value.Kind(); {
	case kind == reflect.Invalid:
		return nil, 0, nil
	case kind == reflect.Slice || kind == reflect.Array:
		return value.Seq2(), value.Len(), nil
	case kind == reflect.Map:
		keys, err := s.run.sortedMapKeys(value)
		entries := make([]reflect.Value, len(keys)) // as they are now, whatever the rounds change
		for i, key := range keys {
			entries[i] = value.MapIndex(key)
		}
		return func(yield func(key, item reflect.Value) bool) {
			for i, key := range keys {
				if !yield(key, entries[i]) {
					return
				}
			}
		}, len(keys), err
	case !value.CanInt() && !value.CanUint():
		return nil, 0, fmt.Errorf("want a list, a map or a number to range over, got %s",
			typeName(value))
	case variables > 1:
		return nil, 0, errors.New("a range over a number has one variable")
	case value.CanInt() && value.Int() > 0 || value.CanUint() && value.Uint() > 0:
		count = 1
	}
	return func(yield func(key, item reflect.Value) bool) {
		for item := range value.Seq() {
			if !yield(reflect.Value{}, item) {
				return
			}
		}
	}, count, nil
}

// sortedMapKeys are a map's keys, in whose order a range goes.
func (r *run) sortedMapKeys(value reflect.Value) ([]reflect.Value, error) {
	if err := r.spend(value.Len()); err != nil {
		return nil, err
	}
	var mistake error
	keys := value.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		order, err := r.order(a, b)
		if err != nil {
			mistake = err
		}
		return order
	})
	return keys, mistake
}

func (s *scope) declare(name string, value reflect.Value) {
	s.variables = &variable{name, value, s.variables}
}

func (s *scope) assign(name string, value reflect.Value) error {
	v, err := s.find(name)
	if err == nil {
		v.value = value
	}
	return err
}

// find returns the variable of that name. The parser lets a variable pass that is assigned to and
// was never declared.
func (s *scope) find(name string) (*variable, error) {
	passed := 0
	for v := s.variables; v != nil; v = v.before {
		if v.name == name {
			return v, s.run.spend(passed / variablePiece)
		}
		passed++
	}
	return nil, complain("there is no variable %s: declare it with :=", name)
}
