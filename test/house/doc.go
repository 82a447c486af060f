// Package house holds the tree to the rules of CONTRIBUTING.md that no linter knows: a comment at
// each field that other packages read, and one meaning for each word.
//
// Be aware: it reads source text only, so it compiles nothing and sees nothing of a type but its
// declaration.
package house
