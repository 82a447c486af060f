package render

import (
	"fmt"
	"reflect"
	"slices"
)

// sprigFunctions are those of sprig that give the same answer whenever and wherever they are asked,
// in little time. Left out is what asks the environment, the network or the clock (also by the
// machine's time zone), what is random (keys and ciphers with their salts too), and what is slow
// by design. New ones of sprig come in by being added here, never by themselves.
var sprigFunctions = []string{
	// text
	"abbrev", "abbrevboth", "camelcase", "cat", "hasPrefix", "hasSuffix", "hello", "initials",
	"join", "kebabcase", "lower", "nindent", "nospace", "plural", "quote", "repeat", "replace",
	"snakecase", "split", "splitList", "splitn", "squote", "substr", "swapcase", "title",
	"toString", "toStrings", "trim", "trimAll", "trimall", "trimPrefix", "trimSuffix", "trunc",
	"untitle", "upper", "wrap", "wrapWith",
	// regular expressions
	"regexFind", "regexFindAll", "regexMatch", "regexQuoteMeta", "regexReplaceAll",
	"regexReplaceAllLiteral", "regexSplit", "mustRegexFind", "mustRegexFindAll",
	"mustRegexMatch", "mustRegexReplaceAll", "mustRegexReplaceAllLiteral", "mustRegexSplit",
	// numbers
	"add", "add1", "add1f", "addf", "atoi", "biggest", "ceil", "div", "divf", "float64", "floor",
	"int", "int64", "max", "maxf", "min", "minf", "mod", "mul", "mulf", "round", "seq", "sub",
	"subf", "toDecimal", "until", "untilStep",
	// defaults and conditions
	"all", "any", "coalesce", "compact", "mustCompact", "deepEqual", "default", "empty", "fail",
	"ternary",
	// maps
	"deepCopy", "mustDeepCopy", "dict", "dig", "get", "hasKey", "keys", "merge", "mergeOverwrite",
	"mustMerge", "mustMergeOverwrite", "pick", "pluck", "set", "unset", "values",
	// lists
	"append", "chunk", "concat", "first", "has", "initial", "last", "list", "mustAppend",
	"mustChunk", "mustFirst", "mustHas", "mustInitial", "mustLast", "mustPrepend", "mustPush",
	"mustRest", "mustReverse", "mustSlice", "mustUniq", "mustWithout", "prepend", "push", "rest",
	"reverse", "slice", "sortAlpha", "tuple", "uniq", "without",
	// types
	"kindIs", "kindOf", "typeIs", "typeIsLike", "typeOf",
	// encodings and sums
	"adler32sum", "b32dec", "b32enc", "b64dec", "b64enc", "duration", "fromJson", "mustFromJson",
	"mustToJson", "mustToPrettyJson", "mustToRawJson", "sha1sum", "sha256sum", "sha512sum",
	"toPrettyJson", "toRawJson",
	// paths, addresses, versions
	"base", "clean", "dir", "ext", "isAbs", "osBase", "osClean", "osDir", "osExt", "osIsAbs",
	"semver", "semverCompare", "urlJoin", "urlParse",
}

// sprigPrints are those that make text of values of any type.
var sprigPrints = []string{
	"cat", "join", "quote", "squote", "toDecimal", "toString", "toStrings",
}

// changing are those that change a map which they are given.
var changing = []string{
	"merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite", "set", "unset",
}

// keys is sprig's, sorted: the order of a map is random.
func keys(dicts ...map[string]any) []string {
	list := []string{}
	for _, dict := range dicts {
		list = append(list, sortedKeys(dict)...)
	}
	return list
}

// values is sprig's, in the order of the keys.
func values(dict map[string]any) []any {
	list := []any{}
	for _, key := range sortedKeys(dict) {
		list = append(list, dict[key])
	}
	return list
}

// sortAlpha is sprig's, which sorts a list of text in place: the list is the pod's or the mesh's.
func sortAlpha(list any) ([]string, error) {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Slice {
		text, err := plain(v)
		return []string{fmt.Sprint(text)}, err
	}
	sorted := []string{}
	for i := range v.Len() {
		text, err := plain(v.Index(i))
		if err != nil {
			return nil, err
		}
		if text != nil {
			sorted = append(sorted, fmt.Sprint(text))
		}
	}
	slices.Sort(sorted)
	return sorted, nil
}
