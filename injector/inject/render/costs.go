package render

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// sprigCosts are the costs of those functions that do more work, or yield more, than they are
// given, by their names.
var sprigCosts = map[string]func([]reflect.Value) (int, error){
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

func fixed(work int) func([]reflect.Value) (int, error) {
	return func([]reflect.Value) (int, error) { return work, nil }
}

// text is an argument that is text; empty if it is none.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

// atMost refuses a text that would be a times b bytes long.
func atMost(a, b int) (int, error) {
	if a > maxText || b > maxText || a*b > maxText {
		return 0, fmt.Errorf("would yield over %d bytes: shorten the text or lower the number",
			maxText)
	}
	return 0, nil
}

func costOfRepeat(args []reflect.Value) (int, error) {
	if args[0].Int() < 0 {
		return 0, fmt.Errorf("want a number that is not negative, got %d", args[0].Int())
	}
	return atMost(int(args[0].Int()), max(1, len(text(args[1]))))
}

func costOfIndent(args []reflect.Value) (int, error) {
	if args[0].Int() < 0 {
		return 0, fmt.Errorf("want a number that is not negative, got %d", args[0].Int())
	}
	return atMost(int(args[0].Int()), 2+strings.Count(text(args[1]), "\n"))
}

// costOfWrap is of wrap LENGTH TEXT and wrapWith LENGTH SEPARATOR TEXT. Each byte of the text can
// be a line of its own.
func costOfWrap(args []reflect.Value) (int, error) {
	separator := 1
	if len(args) > 2 {
		separator = max(1, len(text(args[1])))
	}
	return atMost(len(text(args[len(args)-1])), separator)
}

func costOfReplace(args []reflect.Value) (int, error) {
	old, replacement, source := text(args[0]), text(args[1]), text(args[2])
	return atMost(strings.Count(source, old), len(replacement))
}

func costOfJoin(args []reflect.Value) (int, error) {
	list := args[1]
	if list.Kind() == reflect.Interface {
		list = list.Elem()
	}
	if list.Kind() != reflect.Slice {
		return 0, nil
	}
	return atMost(list.Len(), len(text(args[0])))
}

func costOfSplit(args []reflect.Value) (int, error) {
	if strings.Count(text(args[len(args)-1]), text(args[0])) > maxItems {
		return 0, fmt.Errorf("would yield over %d items: shorten the text", maxItems)
	}
	return 0, nil
}

// costOfUntil is of until and seq too. The limits are far below those of the numbers, since sprig
// goes round for ever where a sum passes them.
func costOfUntil(args []reflect.Value) (int, error) {
	for _, arg := range args {
		if n := arg.Int(); n > maxItems || n < -maxItems {
			return 0, fmt.Errorf("want numbers up to %d, got %d", maxItems, n)
		}
	}
	return 0, nil
}

// costOfPairs is of functions that compare each item with each.
func costOfPairs(args []reflect.Value) (int, error) {
	var list, others size
	if err := list.measure(args[0].Interface(), 0); err != nil {
		return 0, err
	}
	for _, arg := range args[1:] {
		if err := others.measure(arg.Interface(), 0); err != nil {
			return 0, err
		}
	}
	if len(args) == 1 {
		others = list
	}
	return list.items * others.items, nil
}

// onlyTrees refuses maps with structures in them: those are the mesh's own, and would change.
func onlyTrees(args []reflect.Value) (int, error) {
	for _, arg := range args {
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
func textKeys(args []reflect.Value) (int, error) {
	for i := 0; i < len(args); i += 2 {
		switch args[i].Elem().Kind() {
		case reflect.Struct, reflect.Pointer, reflect.Map, reflect.Slice:
			return 0, fmt.Errorf("want text as key %d", i/2+1)
		default:
		}
	}
	return 0, nil
}

func costOfDecimals(args []reflect.Value) (int, error) { return len(args) * decimalWork, nil }

// costOfEqual is of functions that compare one value with another, or with each item of a list.
func costOfEqual(args []reflect.Value) (int, error) {
	work := equalWork
	for _, arg := range args {
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
func costOfCutset(args []reflect.Value) (int, error) {
	return len(text(args[0])) / textPiece * len(text(args[1])) / textPiece, nil
}

// costOfPorts is of the ports of containers, of which a container can have many.
func costOfPorts(args []reflect.Value) (int, error) {
	containers, _ := reflect.TypeAssert[[]corev1.Container](args[0])
	work := 0
	for _, c := range containers {
		work += len(c.Ports)
	}
	return work, nil
}

// costOfTexts is of a list whose items become text.
func costOfTexts(args []reflect.Value) (int, error) {
	list, work := concrete(args[0]), 0
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

// costOfPrintf refuses what would print too much: each verb can print the largest argument, with
// every byte escaped and each item in the widest field that the format asks for. It refuses %p,
// which prints addresses.
func costOfPrintf(args []reflect.Value) (int, error) {
	format := text(args[0])
	largest, items := 0, 1
	for _, arg := range args[1:] {
		var s size
		if err := s.measure(arg.Interface(), 0); err != nil {
			return 0, err
		}
		largest = max(largest, s.text*widestEscape+s.items*printedItem)
		items = max(items, s.items)
	}
	total := len(format)
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		flags := strings.IndexFunc(format[i+1:], func(r rune) bool {
			return !strings.ContainsRune("+-# 0123456789.*[]", r)
		})
		if flags < 0 {
			break
		}
		verb := format[i+1+flags]
		if verb == 'p' {
			return 0, fmt.Errorf("has no verb %%p: addresses are not the same twice")
		}
		total += largest + items*widestField(format[i+1:i+1+flags], args[1:])
		i += 1 + flags
		if total > maxText*widestEscape {
			return 0, fmt.Errorf("would yield over %d bytes: shorten the format", maxText)
		}
	}
	return total / textPiece, nil
}

// widestField is the largest number of a verb's flags, or among the arguments if one of these is
// the width.
func widestField(flags string, args []reflect.Value) int {
	widest, number := 0, 0
	for _, r := range flags {
		if r < '0' || r > '9' {
			number = 0
			continue
		}
		number = min(number*10+int(r-'0'), maxText*widestEscape)
		widest = max(widest, number)
	}
	if !strings.Contains(flags, "*") {
		return widest
	}
	for _, arg := range args {
		if arg.Kind() == reflect.Interface {
			arg = arg.Elem()
		}
		if arg.CanInt() {
			widest = max(widest, int(min(max(arg.Int(), -arg.Int()), maxText*widestEscape)))
		}
	}
	return widest
}
