package render

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template/parse"
)

// complaint is a mistake that says itself what it is about, so that it is told without the
// expression: a bound that is passed, what a function does not accept, what is not set.
type complaint struct{ text string }

func (c *complaint) Error() string { return c.text }

func complain(format string, args ...any) error { return &complaint{fmt.Sprintf(format, args...)} }

func isComplaint(err error) bool {
	var c *complaint
	return errors.As(err, &c)
}

// named says which function did not accept its arguments.
func named(name string, err error) error {
	if err == nil || isComplaint(err) {
		return err
	}
	return complain("function %s: %s", name, strings.TrimSpace(err.Error()))
}

// mistake is why a template did not execute, in one sentence with template and line.
type mistake struct{ text string }

func (m *mistake) Error() string { return m.text }

// at tells where a mistake is, unless that is told already.
func (s *scope) at(node parse.Node, err error) error {
	var told *mistake
	if err == nil || errors.As(err, &told) {
		return err
	}
	expression := ""
	if !isComplaint(err) {
		expression = shorten(node.String()) + ": "
	}
	text := strings.ReplaceAll(expression+shorten(err.Error()), "\n", " ")
	return &mistake{fmt.Sprintf("template %q, line %s: %s", s.run.name, lineOf(s.tree, node), text)}
}

// parsePrefix is what the parser puts in front of its mistakes.
var parsePrefix = regexp.MustCompile(`^template: ` + sourceName + `:(\d+): (?:template: )?`)

// remedies say what to do about the parser's words. A text without one is told as it is.
var remedies = []struct {
	words  *regexp.Regexp
	remedy string
}{
	{regexp.MustCompile(`^function "(.*)" not defined$`),
		`there is no function "$1"; docs/inject.md lists them`},
	{regexp.MustCompile(`^unexpected EOF$`),
		`the text ends within an action: every if, range, with and define wants its end`},
}

// maxTold is how many bytes of a cause are told: what a pod has can be in it.
const maxTold = 500

func shorten(text string) string {
	if len(text) > maxTold {
		return strings.ToValidUTF8(text[:maxTold], "") + "..."
	}
	return text
}

// parseMistake tells a mistake of syntax in one sentence.
func parseMistake(name string, err error) error {
	text := err.Error()
	match := parsePrefix.FindStringSubmatch(text)
	if match == nil {
		return fmt.Errorf("template %q: %s", name, shorten(text))
	}
	cause := strings.TrimPrefix(text, match[0])
	return fmt.Errorf("template %q, line %s: %s", name, match[1], shorten(withRemedy(cause)))
}

func withRemedy(text string) string {
	for _, r := range remedies {
		if r.words.MatchString(text) {
			return r.words.ReplaceAllString(text, r.remedy)
		}
	}
	return text
}
