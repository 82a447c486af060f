package render

import (
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
)

// costOfMatch is of a regular expression that is looked for once.
func costOfMatch(args arguments) (int, error) {
	work, each, err := costOfPattern(args.text(0))
	return work + each*pieces(args.text(1)), err
}

// costOfMatches is of one of which all matches are looked for. Each search can look at all that is
// left of the text, however short its match is, so that the searches are counted one by one.
func costOfMatches(args arguments) (int, error) {
	pattern, subject := args.text(0), args.text(1)
	work, each, err := costOfPattern(pattern)
	if err != nil {
		return 0, err
	}
	if len(args.values) > 2 && args.values[2].Kind() == reflect.String {
		if _, err := atMost(len(subject)+1, len(args.text(2))); err != nil {
			return 0, err
		}
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	for rest := subject; work <= maxWork; {
		work += each * pieces(rest)
		match := expression.FindStringIndex(rest)
		if match == nil || match[1] >= len(rest) {
			break
		}
		rest = rest[max(match[1], 1):]
	}
	return work, nil
}

// costOfPattern is what it takes to compile an expression, and to look for it in a piece of text:
// each instruction of its program can be looked at for each byte.
func costOfPattern(pattern string) (compile, each int, err error) {
	if len(pattern) > maxPattern {
		return 0, 0, fmt.Errorf("the expression has %d bytes: want at most %d", len(pattern),
			maxPattern)
	}
	expression, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, 0, err
	}
	program, err := syntax.Compile(expression.Simplify())
	if err != nil {
		return 0, 0, err
	}
	classes := strings.Count(strings.ToLower(pattern), `\p`)
	return matchWork + classes*classWork, len(program.Inst), nil
}

func pieces(text string) int { return 1 + len(text)/textPiece }

// costOfVersion grows with the text, which can be a list of constraints.
func costOfVersion(args arguments) (int, error) {
	work := versionWork
	for i := range args.values {
		if len(args.text(i)) > maxVersion {
			return 0, fmt.Errorf("want a version of at most %d bytes", maxVersion)
		}
		work += len(args.text(i))
	}
	return work, nil
}
