package render

import (
	"errors"
	"fmt"
	"strings"
	"text/template/parse"
)

// check goes through a parsed text once. It finds templates that are not defined, what is too deep
// or too long, and which functions are used.
type check struct {
	name     string // of the template, for mistakes
	trees    map[string]*parse.Tree
	used     map[string]bool // names of functions
	tree     *parse.Tree     // that is checked
	mistakes []error
	more     int // mistakes that are not told
}

// maxMistakes is how many are told at once.
const maxMistakes = 20

// all checks every tree.
func (c *check) all() error {
	for _, name := range sortedKeys(c.trees) {
		c.tree = c.trees[name]
		c.list(c.tree.Root, 0)
	}
	if c.more > 0 {
		c.mistakes = append(c.mistakes, fmt.Errorf("template %q: and %d mistakes more", c.name,
			c.more))
	}
	return errors.Join(c.mistakes...)
}

func (c *check) usesOneOf(names []string) bool {
	for _, name := range names {
		if c.used[name] {
			return true
		}
	}
	return false
}

func (c *check) list(list *parse.ListNode, depth int) {
	if list == nil || c.tooDeep(list, depth) {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			c.pipe(node.Pipe, depth)
		case *parse.IfNode:
			c.branch(&node.BranchNode, depth)
		case *parse.WithNode:
			c.branch(&node.BranchNode, depth)
		case *parse.RangeNode:
			c.branch(&node.BranchNode, depth)
		case *parse.TemplateNode:
			if c.trees[node.Name] == nil {
				c.mistake(node, "there is no template %q: want a define of that name", node.Name)
			}
			c.pipe(node.Pipe, depth)
		}
	}
}

func (c *check) branch(branch *parse.BranchNode, depth int) {
	c.pipe(branch.Pipe, depth)
	c.list(branch.List, depth+1)
	c.list(branch.ElseList, depth+1)
}

func (c *check) pipe(pipe *parse.PipeNode, depth int) {
	if pipe == nil || c.tooDeep(pipe, depth) {
		return
	}
	for _, command := range pipe.Cmds {
		if len(command.Args) > maxArguments {
			c.mistake(command, "has %d arguments: want at most %d", len(command.Args), maxArguments)
		}
		for _, argument := range command.Args {
			c.argument(argument, depth)
		}
	}
}

func (c *check) argument(node parse.Node, depth int) {
	switch node := node.(type) {
	case *parse.IdentifierNode:
		c.used[node.Ident] = true
	case *parse.ChainNode:
		c.argument(node.Node, depth+1)
	case *parse.PipeNode:
		c.pipe(node, depth+1)
	}
}

func (c *check) tooDeep(node parse.Node, depth int) bool {
	if depth > maxNesting {
		c.mistake(node, "nests deeper than %d: flatten it", maxNesting)
	}
	return depth > maxNesting
}

func (c *check) mistake(node parse.Node, format string, args ...any) {
	if len(c.mistakes) == maxMistakes {
		c.more++
		return
	}
	c.mistakes = append(c.mistakes, fmt.Errorf("template %q, line %s: %s", c.name,
		lineOf(c.tree, node), shorten(fmt.Sprintf(format, args...))))
}

// lineOf is the number of the line that a node begins in.
func lineOf(tree *parse.Tree, node parse.Node) string {
	location, _ := tree.ErrorContext(node)
	line, _, _ := strings.Cut(strings.TrimPrefix(location, sourceName+":"), ":")
	return line
}
