package render

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// sprigCosts are the costs of those functions that do more work, or yield more, than they are
// given, by their names.
var sprigCosts = map[string]func(arguments) (int, error){
	"repeat":    costOfRepeat,
	"nindent":   costOfIndent,
	"wrap":      costOfWrap,
	"wrapWith":  costOfWrap,
	"replace":   costOfReplace,
	"join":      costOfJoin,
	"split":     costOfSplit,
	"splitList": costOfSplit,
	"splitn":    costOfSplit,

	"until":     costOfUntil,
	"untilStep": costOfUntil,
	"seq":       costOfUntil,

	"dict": textKeys,

	"trimAll": costOfCutset,
	"trimall": costOfCutset,

	"uniq":        costOfPairs,
	"mustUniq":    costOfPairs,
	"without":     costOfPairs,
	"mustWithout": costOfPairs,

	"merge":              onlyTrees,
	"mergeOverwrite":     onlyTrees,
	"mustMerge":          onlyTrees,
	"mustMergeOverwrite": onlyTrees,
	"deepCopy":           onlyTrees,
	"mustDeepCopy":       onlyTrees,

	"regexMatch":                 costOfMatch,
	"regexFind":                  costOfMatch,
	"regexFindAll":               costOfMatches,
	"regexSplit":                 costOfMatches,
	"regexReplaceAll":            costOfMatches,
	"regexReplaceAllLiteral":     costOfMatches,
	"mustRegexMatch":             costOfMatch,
	"mustRegexFind":              costOfMatch,
	"mustRegexFindAll":           costOfMatches,
	"mustRegexSplit":             costOfMatches,
	"mustRegexReplaceAll":        costOfMatches,
	"mustRegexReplaceAllLiteral": costOfMatches,

	"semver":        costOfVersion,
	"semverCompare": costOfVersion,

	"add1f":     costOfDecimals,
	"addf":      costOfDecimals,
	"subf":      costOfDecimals,
	"mulf":      costOfDecimals,
	"divf":      costOfDecimals,
	"deepEqual": costOfEqual,
	"has":       costOfEqual,
	"mustHas":   costOfEqual,
}

// The work of calls that take long whatever they are given.
const (
	decimalWork = 300 // of each number, which can have 600 digits
	equalWork   = 30  // of each value; structures are compared field by field
	jsonWork    = 30
	yamlWork    = 300
	versionWork = 50
	matchWork   = 100 // an expression is compiled
	classWork   = 100 // such as \pL: it has hundreds of ranges
)

func fixed(work int) func(arguments) (int, error) {
	return func(arguments) (int, error) { return work, nil }
}

// atMost refuses a text that would be a times b bytes long.
func atMost(a, b int) (int, error) {
	if a > maxText || b > maxText || a*b > maxText {
		return 0, fmt.Errorf("would yield over %d bytes: shorten the text or lower the number",
			maxText)
	}
	return 0, nil
}

func costOfRepeat(args arguments) (int, error) {
	if args.values[0].Int() < 0 {
		return 0, fmt.Errorf("want a number that is not negative, got %d", args.values[0].Int())
	}
	return atMost(int(args.values[0].Int()), max(1, len(args.text(1))))
}

func costOfIndent(args arguments) (int, error) {
	if args.values[0].Int() < 0 {
		return 0, fmt.Errorf("want a number that is not negative, got %d", args.values[0].Int())
	}
	return atMost(int(args.values[0].Int()), 2+strings.Count(args.text(1), "\n"))
}

// costOfWrap is of wrap LENGTH TEXT and wrapWith LENGTH SEPARATOR TEXT. Each byte of the text can
// be a line of its own.
func costOfWrap(args arguments) (int, error) {
	separator := 1
	if len(args.values) > 2 {
		separator = max(1, len(args.text(1)))
	}
	return atMost(len(args.text(len(args.values)-1)), separator)
}

func costOfReplace(args arguments) (int, error) {
	old, replacement, source := args.text(0), args.text(1), args.text(2)
	return atMost(strings.Count(source, old), len(replacement))
}

func costOfJoin(args arguments) (int, error) {
	list := args.values[1]
	if list.Kind() == reflect.Interface {
		list = list.Elem()
	}
	if list.Kind() != reflect.Slice {
		return 0, nil
	}
	return atMost(list.Len(), len(args.text(0)))
}

func costOfSplit(args arguments) (int, error) {
	if strings.Count(args.text(len(args.values)-1), args.text(0)) > maxItems {
		return 0, fmt.Errorf("would yield over %d items: shorten the text", maxItems)
	}
	return 0, nil
}

// costOfUntil is of until and seq too. The limits are far below those of the numbers, since sprig
// goes round for ever where a sum passes them.
func costOfUntil(args arguments) (int, error) {
	for _, arg := range args.values {
		if n := arg.Int(); n > maxItems || n < -maxItems {
			return 0, fmt.Errorf("want numbers up to %d, got %d", maxItems, n)
		}
	}
	return 0, nil
}

// costOfPairs is of functions that compare each item with each.
func costOfPairs(args arguments) (int, error) {
	list, others := args.sizes[0].items, 0
	for _, other := range args.sizes[1:] {
		others += other.items
	}
	if len(args.sizes) == 1 {
		others = list
	}
	return list * others, nil
}

// onlyTrees refuses maps with structures in them: those are the mesh's own, and would change.
func onlyTrees(args arguments) (int, error) {
	for _, arg := range args.values {
		if arg.Kind() == reflect.Interface {
			arg = arg.Elem()
		}
		switch arg.Kind() {
		case reflect.Map, reflect.Slice:
			if plainItems(arg) != nil {
				return 0, fmt.Errorf("want a map of text, numbers, lists and maps")
			}
		case reflect.Struct, reflect.Pointer:
			return 0, fmt.Errorf("want a map of text, numbers, lists and maps")
		default:
		}
	}
	return 0, nil
}

// textKeys refuses structures as keys, of which sprig would take the addresses.
func textKeys(args arguments) (int, error) {
	for i := 0; i < len(args.values); i += 2 {
		switch args.values[i].Elem().Kind() {
		case reflect.Struct, reflect.Pointer, reflect.Map, reflect.Slice:
			return 0, fmt.Errorf("want text as key %d", i/2+1)
		default:
		}
	}
	return 0, nil
}

func costOfDecimals(args arguments) (int, error) { return len(args.values) * decimalWork, nil }

// costOfEqual is of functions that compare one value with another, or with each item of a list.
func costOfEqual(args arguments) (int, error) {
	work := equalWork
	for _, arg := range args.values {
		work += sizeOf(arg) / textPiece
		if list := concrete(arg); list.Kind() == reflect.Slice {
			for i := range list.Len() {
				work += sizeOf(list.Index(i)) / textPiece
			}
		}
	}
	return work, nil
}

// costOfCutset is of trimAll CUTSET TEXT, which looks for each character of the one in the other.
func costOfCutset(args arguments) (int, error) {
	return len(args.text(0)) / textPiece * len(args.text(1)) / textPiece, nil
}

// costOfPorts is of the ports of containers, of which a container can have many.
func costOfPorts(args arguments) (int, error) {
	containers, _ := reflect.TypeAssert[[]corev1.Container](args.values[0])
	work := 0
	for _, c := range containers {
		work += len(c.Ports)
	}
	return work, nil
}

// costOfTexts is of a list whose items become text.
func costOfTexts(args arguments) (int, error) {
	list, work := concrete(args.values[0]), 0
	if list.Kind() != reflect.Slice {
		return workOfPlain(list), nil
	}
	for i := range list.Len() {
		work += workOfPlain(list.Index(i))
		if work > maxWork {
			break
		}
	}
	return work, nil
}
