package podtree

import (
	"encoding/json"
	"math"
	"reflect"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Into reads a tree as a value of Go, such as a corev1.Pod, by its JSON. Fields that its type does
// not know are passed over. The value may share parts with the tree.
//
// Usual trees are converted without being written as JSON, in a quarter of the time. Others are
// written, and whatever is wrong is left to the decoder to say.
func Into(o Object, to any) error {
	if isUsual(o) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, to); err == nil {
			return nil
		}
	}
	reflect.ValueOf(to).Elem().SetZero()
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, to)
}

// isUsual reports whether a value comes out of the converter as it comes out of JSON. Numbers need
// not: the converter cuts those that are too large for their field. Neither do texts that are no
// UTF-8, which JSON cannot have.
func isUsual(value any) bool {
	switch value := value.(type) {
	case nil, bool:
		return true
	case string:
		return utf8.ValidString(value)
	case int64:
		return value >= math.MinInt32 && value <= math.MaxInt32
	case Object:
		for key, item := range value {
			if !utf8.ValidString(key) || !isUsual(item) {
				return false
			}
		}
		return value != nil
	case []any:
		for _, item := range value {
			if !isUsual(item) {
				return false
			}
		}
		return value != nil
	}
	return false
}

// MaxSize returns how many bytes the JSON of a value can have at most. It can have far fewer, down
// to a sixth.
func MaxSize(value any) int {
	const number, escape = 32, len(`\u0000`)
	switch value := value.(type) {
	case string:
		return len(`""`) + escape*len(value)
	case Object:
		sum := len(`{}`)
		for key, item := range value {
			sum += len(`"":,`) + escape*len(key) + MaxSize(item)
		}
		return sum
	case []any:
		sum := len(`[]`)
		for _, item := range value {
			sum += len(`,`) + MaxSize(item)
		}
		return sum
	}
	return number
}
