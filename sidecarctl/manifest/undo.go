package manifest

import (
	"encoding/json"
	"reflect"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// undo is how a value becomes what it was, whatever others have changed beside it.
type undo struct {
	Was   []any            `json:"was,omitempty"`   // the value, one; none if there was none
	Ours  string           `json:"ours,omitempty"`  // hash of what replaced it; "" if it was removed
	Added bool             `json:"added,omitempty"` // there was none
	Keys  map[string]*undo `json:"keys,omitempty"`  // of a mapping
	List  *undoList        `json:"list,omitempty"`
}

// undoList is how a list becomes what it was. Its elements have the names of itemKeys.
type undoList struct {
	Added   []string         `json:"added,omitempty"`
	Removed map[string]any   `json:"removed,omitempty"`
	Changed map[string]*undo `json:"changed,omitempty"`
	Order   []string         `json:"order,omitempty"` // as it was, if that is needed to restore it
}

// undoOf returns what makes was of ours; nil if they are equal.
func undoOf(was, ours any, had, has bool) *undo {
	if had && has && reflect.DeepEqual(was, ours) {
		return nil
	}
	wasObject, _ := was.(podtree.Object)
	oursObject, isObject := ours.(podtree.Object)
	wasList, _ := was.([]any)
	oursList, isList := ours.([]any)
	switch {
	case !has:
		return &undo{Was: []any{was}}
	case isObject && (!had && len(oursObject) > 0 || wasObject != nil):
		keys := map[string]*undo{}
		for key := range union(wasObject, oursObject) {
			old, had := wasObject[key]
			value, has := oursObject[key]
			if u := undoOf(old, value, had, has); u != nil {
				keys[key] = u
			}
		}
		return &undo{Added: !had, Keys: keys}
	case isList && (!had && len(oursList) > 0 || wasList != nil):
		return &undo{Added: !had, List: undoListOf(wasList, oursList)}
	case !had:
		return &undo{Added: true, Ours: hash(ours)}
	}
	return &undo{Was: []any{was}, Ours: hash(ours)}
}

func union(a, b podtree.Object) map[string]bool {
	all := make(map[string]bool, len(a)+len(b))
	for key := range a {
		all[key] = true
	}
	for key := range b {
		all[key] = true
	}
	return all
}

func undoListOf(was, ours []any) *undoList {
	l := &undoList{Removed: map[string]any{}, Changed: map[string]*undo{}}
	wasKeys, oursKeys := itemKeys(was), itemKeys(ours)
	left := make(map[string]any, len(ours))
	for i, key := range oursKeys {
		left[key] = ours[i]
	}
	var stays []string
	old := make(map[string]bool, len(was))
	for i, key := range wasKeys {
		old[key] = true
		value, ok := left[key]
		if !ok {
			l.Removed[key] = was[i]
			continue
		}
		stays = append(stays, key)
		if u := undoOf(was[i], value, true, true); u != nil {
			l.Changed[key] = u
		}
	}
	var kept []string
	for _, key := range oursKeys {
		if old[key] {
			kept = append(kept, key)
		} else {
			l.Added = append(l.Added, key)
		}
	}
	if len(l.Removed) > 0 || !reflect.DeepEqual(stays, kept) {
		l.Order = wasKeys
	}
	return l
}

// defaults are the fields that the API server adds to what was written without them. Where nothing
// else is left of what was added, they are no reason to leave it.
var defaults = map[string][]string{
	"apiVersion":               {`"v1"`},
	"defaultMode":              {`420`},
	"failureThreshold":         {`3`},
	"imagePullPolicy":          {`"Always"`, `"IfNotPresent"`},
	"periodSeconds":            {`10`},
	"protocol":                 {`"TCP"`},
	"resources":                {`{}`},
	"scheme":                   {`"HTTP"`},
	"securityContext":          {`{}`},
	"successThreshold":         {`1`},
	"terminationMessagePath":   {`"/dev/termination-log"`},
	"terminationMessagePolicy": {`"File"`},
	"timeoutSeconds":           {`1`},
}

// onlyDefaults reports whether a mapping has nothing but what the API server adds.
func onlyDefaults(object podtree.Object) bool {
	for key, value := range object {
		if !isDefault(key, value) {
			return false
		}
	}
	return true
}

func isDefault(key string, value any) bool {
	data, err := json.Marshal(value)
	for _, one := range defaults[key] {
		if err == nil && string(data) == one {
			return true
		}
	}
	return false
}
