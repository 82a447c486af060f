package manifest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// identities are the fields that tell the elements of a list apart, as strategic merge does it: a
// volume mount has a volume's name that others may have too, but no other's path.
var identities = []string{"mountPath", "name", "containerPort"}

// nameless begins the name of an element that has none of the fields.
const nameless = "hash="

// itemKeys name the elements of a list: by their own name where they have one, else by what they
// are. Of two that are named the same, the second says so.
func itemKeys(list []any) []string {
	keys := make([]string, 0, len(list))
	seen := make(map[string]int, len(list))
	for _, item := range list {
		key := itemKey(item)
		if seen[key]++; seen[key] > 1 {
			key = fmt.Sprintf("%s#%d", key, seen[key])
		}
		keys = append(keys, key)
	}
	return keys
}

func itemKey(item any) string {
	object, _ := item.(podtree.Object)
	for _, field := range identities {
		switch value := object[field].(type) {
		case string, int64:
			return fmt.Sprintf("%s=%v", field, value)
		}
	}
	return nameless + hash(item)
}

// hash is a short one, of a value as JSON.
func hash(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "" // no value of a tree
	}
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// align returns for each element of the list after the index of the one before that it is; -1 if
// it is new. The indices rise: what changed its place is an element removed and a new one.
func align(before, after []any) []int {
	index := make(map[string]int, len(before))
	for i, key := range itemKeys(before) {
		index[key] = i
	}
	matches := make([]int, 0, len(after))
	for _, key := range itemKeys(after) {
		i, ok := index[key]
		if !ok {
			i = -1
		}
		matches = append(matches, i)
	}
	return rising(matches)
}

// rising keeps as many of the indices as can rise, and makes -1 of the others.
func rising(indices []int) []int {
	var ends []int // ends[n] is where the run of n+1 indices ends whose last is the least
	before := make([]int, len(indices))
	for at, index := range indices {
		if index < 0 {
			continue
		}
		n := sort.Search(len(ends), func(n int) bool { return indices[ends[n]] >= index })
		before[at] = -1
		if n > 0 {
			before[at] = ends[n-1]
		}
		ends = append(ends[:n], append([]int{at}, ends[min(n+1, len(ends)):]...)...)
	}
	kept := slices.Repeat([]int{-1}, len(indices))
	if len(ends) > 0 {
		for at := ends[len(ends)-1]; at >= 0; at = before[at] {
			kept[at] = indices[at]
		}
	}
	return kept
}
