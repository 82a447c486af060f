package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// reverter undoes changes of a pod that has been changed by others since.
type reverter struct {
	left []string // the fields that others changed
}

// value returns what a value was, and whether there was one.
func (r *reverter) value(u *undo, path string, value any, has bool) (any, bool) {
	object, isObject := value.(podtree.Object)
	list, isList := value.([]any)
	switch {
	case u.Keys != nil && (isObject || value == nil):
		return r.keys(u, path, object, isObject)
	case u.List != nil && (isList || value == nil):
		return r.list(u, path, list, isList)
	case u.Keys != nil || u.List != nil:
	case u.Added && !has:
		return nil, false
	case u.Added && hash(value) == u.Ours:
		return nil, false
	case len(u.Was) != 1:
	case has && (hash(value) == u.Ours || reflect.DeepEqual(value, u.Was[0])):
		return u.Was[0], true
	case u.Ours == "" && (!has || isDefault(path[strings.LastIndexByte(path, '.')+1:], value)):
		return u.Was[0], true
	}
	r.left = append(r.left, path)
	return value, has
}

func (r *reverter) keys(u *undo, path string, object podtree.Object, has bool) (any, bool) {
	if !has && u.Added {
		return nil, false
	}
	result := make(podtree.Object, len(object))
	maps.Copy(result, object)
	for _, key := range slices.Sorted(maps.Keys(u.Keys)) {
		if u.Keys[key] == nil {
			continue
		}
		value, has := result[key]
		field := strings.TrimPrefix(path+"."+key, ".")
		if value, has = r.value(u.Keys[key], field, value, has); has {
			result[key] = value
		} else {
			delete(result, key)
		}
	}
	if u.Added && onlyDefaults(result) || !has && len(result) == 0 {
		return nil, false
	}
	return result, true
}

func (r *reverter) list(u *undo, path string, list []any, has bool) (any, bool) {
	if !has && u.Added {
		return nil, false
	}
	result := make([]any, 0, len(list))
	names, added, there := []string{}, map[string]bool{}, map[string]bool{}
	for _, key := range u.List.Added {
		added[key] = true
	}
	for i, key := range itemKeys(list) {
		there[key] = true
		if added[key] {
			continue
		}
		item := list[i]
		if change := u.List.Changed[key]; change != nil {
			item, _ = r.value(change, fmt.Sprintf("%s[%s]", path, key), item, true)
		}
		result, names = append(result, item), append(names, key)
	}
	for _, key := range u.List.Order {
		if item, ok := u.List.Removed[key]; ok && (!there[key] || added[key]) {
			result, names = append(result, item), append(names, key)
		}
	}
	for _, key := range u.List.Added {
		if strings.HasPrefix(key, nameless) && !there[key] {
			r.left = append(r.left, path)
		}
	}
	result = inOrder(result, names, u.List.Order)
	if len(result) == 0 && (u.Added || !has) {
		return nil, false
	}
	return result, true
}

// inOrder sorts a list as it was. What was not in it stays behind what it is behind now.
func inOrder(list []any, names, order []string) []any {
	if len(order) == 0 {
		return list
	}
	rank := make(map[string]int, len(order))
	for i, name := range order {
		rank[name] = i
	}
	type ranked struct {
		rank int
		item any
	}
	all := make([]ranked, 0, len(list))
	last := -1
	for i, item := range list {
		if at, ok := rank[names[i]]; ok {
			last = at
		}
		all = append(all, ranked{last, item})
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return a.rank - b.rank })
	sorted := make([]any, 0, len(list))
	for _, one := range all {
		sorted = append(sorted, one.item)
	}
	return sorted
}
