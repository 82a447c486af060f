package render

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// boundError is a mistake that is told without the name of a function: a bound that was passed, or
// a value that is not set.
type boundError struct{ text string }

func (e *boundError) Error() string { return e.text }

func bound(format string, args ...any) error { return &boundError{fmt.Sprintf(format, args...)} }

func isBound(err error) bool {
	var own *boundError
	return errors.As(err, &own)
}

// callError is what a function of the template did not accept.
type callError struct {
	function string
	cause    error
}

func (e *callError) Error() string {
	return fmt.Sprintf("function %s: %s", e.function, strings.TrimSpace(e.cause.Error()))
}

func (e *callError) Unwrap() error { return e.cause }

// text/template's own words, of which the line, the expression and the cause are kept.
var (
	parsePrefix   = regexp.MustCompile(`^template: ` + sourceName + `:(\d+): (?:template: )?`)
	executePrefix = regexp.MustCompile(`(?s)^template: ` + sourceName +
		`:(\d+):\d+: executing "(?:[^"\\]|\\.)*" at <(.*?)>: `)
)

// remedies say what to do about text/template's words. The first that fits is taken; a text
// without one is told as it is.
var remedies = []struct {
	words  *regexp.Regexp
	remedy string
}{
	{regexp.MustCompile(`^function "(.*)" not defined$`),
		`there is no function "$1"; docs/inject.md lists them`},
	{regexp.MustCompile(`^unexpected EOF$`),
		`the text ends within an action: every if, range, with and define wants its end`},
	{regexp.MustCompile(`^can't evaluate field (\S+) in type .*$`),
		`there is no field "$1"; docs/inject.md lists the fields`},
	{regexp.MustCompile(`^nil pointer evaluating .*\.(\S+)$`),
		`"$1" is looked up in what is not set: set it, or ask for it with "if" or "with" first`},
	{regexp.MustCompile(`^nil data; no entry for key "(.*)"$`),
		`"$1" is looked up in what is not set: set it, or ask for it with "if" or "with" first`},
	{regexp.MustCompile(`^(wrong number of args for .*)$`),
		`$1; docs/inject.md has each function's arguments`},
	{regexp.MustCompile(`^wrong type for value; expected (.*); got (.*)$`),
		`want a value of type $1, got $2`},
	{regexp.MustCompile(`^error calling index: index of (?:untyped nil|nil pointer)$`),
		`looks into what is not set: set it, or ask for it with "if" or "with" first`},
	{regexp.MustCompile(`^error calling (\w+): (?:error calling \w+: )*(?s:(.*))$`),
		`function $1: $2`},
	{regexp.MustCompile(`^range can't iterate over (.*)$`),
		`want a list, a map or a number to range over, got $1`},
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

// executeMistake tells in one sentence why a template did not execute.
func executeMistake(name string, err error) error {
	text := err.Error()
	where := fmt.Sprintf("template %q", name)
	expression := ""
	if match := executePrefix.FindStringSubmatch(text); match != nil {
		where += ", line " + match[1]
		expression = match[2] + ": " // text/template has shortened it
		text = strings.TrimPrefix(text, match[0])
	}
	if own := (*boundError)(nil); errors.As(err, &own) {
		return fmt.Errorf("%s: %s", where, shorten(own.Error()))
	}
	if own := (*callError)(nil); errors.As(err, &own) {
		return fmt.Errorf("%s: %s", where, shorten(own.Error()))
	}
	return fmt.Errorf("%s: %s%s", where, expression, shorten(withRemedy(text)))
}

func withRemedy(text string) string {
	for _, r := range remedies {
		if r.words.MatchString(text) {
			return r.words.ReplaceAllString(text, r.remedy)
		}
	}
	return text
}
