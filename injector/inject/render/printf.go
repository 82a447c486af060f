package render

import (
	"fmt"
	"reflect"
	"strings"
)

// The bytes that an argument of printf takes at most.
const (
	printedItem  = 320 // of an item without text: 1e308 under %f has 316
	widestEscape = 6   // of a byte that is quoted
)

const flagsOfVerbs = "+-# 0123456789.*[]"

// costOfPrintf refuses what would print too much: each verb can print the largest argument, with
// every byte escaped and each item in the widest field that the format asks for. It refuses %p,
// which prints addresses. Of two % with flags between, such as %5% and %]%, the second one can end
// the verb or begin another: it counts as both.
func costOfPrintf(args arguments) (int, error) {
	format, largest := args.text(0), size{items: 1}
	for _, s := range args.sizes[1:] {
		largest.items = max(largest.items, s.items)
		largest.text = max(largest.text, s.text)
	}
	total, unsure := len(format), false
	for rest := format; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return total / textPiece, nil
		}
		rest = after
		verb := strings.TrimLeft(after, flagsOfVerbs)
		flags := after[:len(after)-len(verb)]
		isPercent := strings.HasPrefix(verb, "%")
		if isPercent && flags == "" && !unsure {
			rest = verb[1:]
			continue
		}
		unsure = isPercent
		if strings.HasPrefix(verb, "p") {
			return 0, fmt.Errorf("has no verb %%p: addresses are not the same twice")
		}
		widest := printedItem + widestField(flags, args.values[1:])
		total += largest.text*widestEscape + largest.items*widest
		if total > maxText*widestEscape {
			return 0, fmt.Errorf("would yield over %d bytes: shorten the format", maxText)
		}
	}
}

// widestField is the largest number of a verb's flags, or among the arguments if one of these is
// the width.
func widestField(flags string, args []reflect.Value) int {
	const most = maxText * widestEscape
	widest, number := 0, 0
	for _, r := range flags {
		if r < '0' || r > '9' {
			number = 0
			continue
		}
		number = min(number*10+int(r-'0'), most)
		widest = max(widest, number)
	}
	if !strings.Contains(flags, "*") {
		return widest
	}
	for _, arg := range args {
		switch arg = concrete(arg); {
		case arg.CanInt():
			widest = max(widest, int(min(max(arg.Int(), -arg.Int()), most)))
		case arg.CanUint():
			widest = max(widest, int(min(arg.Uint(), most)))
		}
	}
	return widest
}
