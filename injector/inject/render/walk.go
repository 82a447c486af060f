package render

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// The functions that the walk puts into the text, for the run to keep its books by. A template
// cannot name them: Parse does not know them.
const (
	workName  = "countWork"
	enterName = "enterTemplate"
	leaveName = "leaveTemplate"
	printName = "printedText"
)

// walk goes through a parsed text once. It finds the mistakes that text/template would find only
// where it meets them, and puts in what keeps the books: in front of every body how much work it
// is, around every template that is called what counts the depth, and at the end of every printed
// expression what looks at the value.
type walk struct {
	name     string // of the template, for mistakes
	trees    map[string]*parse.Tree
	used     map[string]bool // names of functions
	texts    int             // calls of String on what may be large, in the body that is walked
	tree     *parse.Tree     // that is walked
	mistakes []error
}

// all walks every tree.
func (w *walk) all() error {
	for _, name := range sortedKeys(w.trees) {
		w.tree = w.trees[name]
		w.body(w.tree.Root, 0)
	}
	return errors.Join(w.mistakes...)
}

func (w *walk) usesOneOf(names []string) bool {
	for _, name := range names {
		if w.used[name] {
			return true
		}
	}
	return false
}

// body walks the nodes of a template or of a range, which are executed as often as the template is
// called or the range goes round. The ranges within count for themselves.
func (w *walk) body(list *parse.ListNode, depth int) {
	pos, outside := list.Pos, w.texts
	w.texts = 0
	work := 1 + w.list(list, depth)
	count := callNode(pos, workName, numberNode(pos, work), numberNode(pos, w.texts))
	list.Nodes = append([]parse.Node{count}, list.Nodes...)
	w.texts = outside
}

// list walks nodes that are executed at most once with their body, and returns how many they are.
func (w *walk) list(list *parse.ListNode, depth int) int {
	if list == nil {
		return 0
	}
	if depth > maxNesting {
		w.mistake(list, "nests deeper than %d: flatten it", maxNesting)
		return 0
	}
	work := 0
	nodes := make([]parse.Node, 0, len(list.Nodes))
	for _, node := range list.Nodes {
		work += 1 + w.node(node, depth)
		if call, ok := node.(*parse.TemplateNode); ok {
			nodes = append(nodes, callNode(call.Pos, enterName), node,
				callNode(call.Pos, leaveName))
			continue
		}
		nodes = append(nodes, node)
	}
	list.Nodes = nodes
	return work
}

// node walks one node of a list and returns how many are in it.
func (w *walk) node(node parse.Node, depth int) int {
	switch node := node.(type) {
	case *parse.ActionNode:
		work := w.pipe(node.Pipe, depth)
		if len(node.Pipe.Decl) == 0 {
			node.Pipe.Cmds = append(node.Pipe.Cmds, printCommand(node.Pipe))
		}
		return work
	case *parse.IfNode:
		return w.branch(&node.BranchNode, depth)
	case *parse.WithNode:
		return w.branch(&node.BranchNode, depth)
	case *parse.RangeNode:
		work := w.pipe(node.Pipe, depth) + w.list(node.ElseList, depth+1)
		w.body(node.List, depth+1)
		return work
	case *parse.TemplateNode:
		if w.trees[node.Name] == nil {
			w.mistake(node, "there is no template %q: want a define of that name", node.Name)
		}
		return w.pipe(node.Pipe, depth)
	}
	return 0
}

func (w *walk) branch(branch *parse.BranchNode, depth int) int {
	return w.pipe(branch.Pipe, depth) + w.list(branch.List, depth+1) +
		w.list(branch.ElseList, depth+1)
}

func (w *walk) pipe(pipe *parse.PipeNode, depth int) int {
	if pipe == nil {
		return 0
	}
	if depth > maxNesting {
		w.mistake(pipe, "nests deeper than %d: flatten it", maxNesting)
		return 0
	}
	work := 0
	for _, command := range pipe.Cmds {
		if len(command.Args) > maxArguments {
			w.mistake(command, "has %d arguments: want at most %d", len(command.Args), maxArguments)
		}
		for _, argument := range command.Args {
			work += 1 + w.argument(argument, depth)
		}
	}
	return work
}

func (w *walk) argument(node parse.Node, depth int) int {
	switch node := node.(type) {
	case *parse.IdentifierNode:
		w.used[node.Ident] = true
	case *parse.FieldNode:
		return w.fields(node, node.Ident)
	case *parse.VariableNode:
		return w.fields(node, node.Ident[1:])
	case *parse.ChainNode:
		return w.fields(node, node.Field) + w.argument(node.Node, depth+1)
	case *parse.PipeNode:
		return w.pipe(node, depth+1)
	}
	return 0
}

// fields returns how much work it is to look names up. It refuses those of methods that do more
// than read.
func (w *walk) fields(node parse.Node, names []string) int {
	work := 0
	for i, name := range names {
		if slices.Contains(readingMethods, name) {
			work += methodWork
		}
		if name == "String" && (i == 0 || !slices.Contains(shortTexts, names[i-1])) {
			w.texts++
		}
		if refusedMethods[name] {
			w.mistake(node, "method %q cannot be called: read fields; a key of that name is read "+
				"with index", name)
		}
	}
	return work
}

func (w *walk) mistake(node parse.Node, format string, args ...any) {
	location, _ := w.tree.ErrorContext(node)
	line, _, _ := strings.Cut(strings.TrimPrefix(location, sourceName+":"), ":")
	w.mistakes = append(w.mistakes,
		fmt.Errorf("template %q, line %s: %s", w.name, line, fmt.Sprintf(format, args...)))
}

// callNode is an action that calls a function of the run. It prints nothing.
func callNode(pos parse.Pos, name string, args ...parse.Node) *parse.ActionNode {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: pos,
		Cmds: []*parse.CommandNode{commandNode(pos, name, args...)},
	}}
}

func commandNode(pos parse.Pos, name string, args ...parse.Node) *parse.CommandNode {
	identifier := parse.NewIdentifier(name).SetPos(pos)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos,
		Args: append([]parse.Node{identifier}, args...)}
}

// printCommand looks at the value of an expression before it is printed.
func printCommand(pipe *parse.PipeNode) *parse.CommandNode {
	text := pipe.String()
	return commandNode(pipe.Pos, printName, &parse.StringNode{
		NodeType: parse.NodeString, Pos: pipe.Pos, Quoted: strconv.Quote(text), Text: text,
	})
}

func numberNode(pos parse.Pos, n int) *parse.NumberNode {
	return &parse.NumberNode{NodeType: parse.NodeNumber, Pos: pos, IsInt: true, Int64: int64(n),
		Text: strconv.Itoa(n)}
}
