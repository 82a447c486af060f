package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A key that is in a struct alone would never be read; one in the table alone has nowhere to go.
func TestTablesHaveTheKeysOfTheirStructs(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(tags(reflect.TypeFor[raw]()), names(configKeys)); diff != "" {
		t.Errorf("configuration (-struct +table):\n%s", diff)
	}
	if diff := cmp.Diff(tags(reflect.TypeFor[Settings]()), names(settingKeys)); diff != "" {
		t.Errorf("settings (-struct +table):\n%s", diff)
	}
	var r raw
	fields(t, configKeys, &r)
	var s Settings
	fields(t, settingKeys, &s)
}

func tags(kind reflect.Type) []string {
	var all []string
	for field := range kind.Fields() {
		all = append(all, field.Tag.Get("json"))
	}
	return all
}

func names[T any](table []key[T]) []string {
	var all []string
	for _, k := range table {
		all = append(all, k.name)
	}
	return all
}

// fields holds that each key leads to the field with its tag.
func fields[T any](t *testing.T, table []key[T], of *T) {
	t.Helper()
	value := reflect.ValueOf(of).Elem()
	for _, k := range table {
		i := slices.Index(tags(value.Type()), k.name)
		if i >= 0 && value.Field(i).Addr().Interface() != k.field(of) {
			t.Errorf("key %s does not lead to its field", k.name)
		}
	}
}

func TestKeysAreDescribed(t *testing.T) {
	t.Parallel()
	keys := Keys()
	if len(keys) != len(configKeys)+len(settingKeys) {
		t.Errorf("%d keys", len(keys))
	}
	for _, k := range keys {
		if !strings.HasSuffix(k.About, ".") || strings.Contains(k.About, "\n") {
			t.Errorf("%s: want sentences, got %q", k.Name, k.About)
		}
	}
	if keys[0].Name != "policy" || keys[len(configKeys)].Name != "sidecarCNI.nativeSidecars" {
		t.Errorf("%v", keys)
	}
}
