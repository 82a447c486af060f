package target

import (
	"errors"
	"fmt"
	"math"

	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// maxDepth is how deep a YAML document may be nested; aliases make it deeper than it is written.
const maxDepth = 1000

// budget is how much may still come out of a file. The library bounds how often aliases are
// expanded in a document, but neither how large each of them is nor how many documents there are.
type budget int

func (b *budget) spend(n int) error {
	if *b -= budget(n + 1); *b < 0 {
		return fmt.Errorf("with its aliases expanded it is larger than %d MiB; "+
			"write it without aliases", bounded.Manifest>>20)
	}
	return nil
}

// convert makes JSON's types of what the YAML library returns.
func (b *budget) convert(value any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels; no manifest is", maxDepth)
	}
	switch value := value.(type) {
	case map[any]any:
		return b.mapping(value, depth)
	case []any:
		return b.list(value, depth)
	case string:
		return value, b.spend(len(value))
	case float64:
		if math.IsInf(value, 0) || math.IsNaN(value) {
			return nil, errors.New("a number in it is infinite, too large or none; " +
				"put it into quotes if it is a string")
		}
		return value, b.spend(0)
	case nil, bool, int, int64, uint64:
		return value, b.spend(0)
	}
	return nil, fmt.Errorf("a value in it is a %T, which JSON does not know", value)
}

func (b *budget) list(values []any, depth int) (any, error) {
	converted := make([]any, 0, len(values))
	for _, value := range values {
		element, err := b.convert(value, depth+1)
		if err != nil {
			return nil, err
		}
		converted = append(converted, element)
	}
	return converted, b.spend(0)
}

// mapping turns keys into strings as kubectl does: 1 is "1".
func (b *budget) mapping(values map[any]any, depth int) (any, error) {
	converted := make(map[string]any, len(values))
	for key, value := range values {
		if key == nil {
			return nil, errors.New("a key in it is null; put it into quotes if it is a string")
		}
		name := fmt.Sprint(key)
		if _, twice := converted[name]; twice {
			return nil, fmt.Errorf("key %q is there twice; keep one of them",
				foreign.Cut(name))
		}
		if err := b.spend(len(name)); err != nil {
			return nil, err
		}
		element, err := b.convert(value, depth+1)
		if err != nil {
			return nil, err
		}
		converted[name] = element
	}
	return converted, b.spend(0)
}
