package yamltree_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/yamltree"
)

func TestDocumentsAreReadAsTheTreeOfTheirJSON(t *testing.T) {
	t.Parallel()
	tree := podtree.Object{"a": int64(1), "b": []any{1.5, "x", true, nil}}
	rows := []struct {
		name, text string
		want       podtree.Object
	}{
		{"YAML", "a: 1\nb: [1.5, x, true, null]\n", tree},
		{"JSON", `{"a": 1, "b": [1.5, "x", true, null]}`, tree},
		{"comments and a header", "# first\n---\n# second\na: 1\nb: [1.5, x, on, ~]\n...\n", tree},
		{"an empty document behind it", "a: 1\nb: [1.5, x, true, ]\n---\n",
			podtree.Object{"a": int64(1), "b": []any{1.5, "x", true}}},
		{"an alias", "a: &x {k: 1}\nb: *x\n",
			podtree.Object{"a": podtree.Object{"k": int64(1)}, "b": podtree.Object{"k": int64(1)}}},
		{"a merge key", "a: &x {k: 1}\nb:\n  <<: *x\n  z: 2\n", podtree.Object{
			"a": podtree.Object{"k": int64(1)},
			"b": podtree.Object{"k": int64(1), "z": int64(2)},
		}},
		{"keys that are no text", "1: a\ntrue: b\n", podtree.Object{"1": "a", "true": "b"}},
		{"no document", "", nil},
		{"a comment alone", "# a: 1\n", nil},
		{"null", "null", nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := yamltree.Decode([]byte(row.text), 1000)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	// Ten aliases, each of ten aliases, and so on.
	laughs := "a0: &a0 [" + strings.Repeat("x, ", 10) + "]\n"
	for _, level := range []string{"01", "12", "23", "34", "45", "56", "67", "78"} {
		laughs += "a" + level[1:] + ": &a" + level[1:] + " [" +
			strings.Repeat("*a"+level[:1]+", ", 10) + "]\n"
	}
	rows := []struct{ name, text, want string }{
		{"no YAML", "a: b: c", "mapping values are not allowed"},
		{"a tab", "a:\n\tb: 1", "cannot start any token"},
		{"a list", "- a\n- b\n", "want keys with values"},
		{"a text", "hello", "want keys with values"},
		{"a number", "1", "want keys with values"},
		{"a key twice", "a: 1\na: 2\n", `key "a" already set in map`},
		{"two documents", "a: 1\n---\nb: 2\n", "second document"},
		{"an empty first document", "---\n---\nb: 2\n", "second document"},
		{"too long", strings.Repeat("#", limit+1), "it has 100001 bytes, want at most 100000"},
		{"aliases of aliases", laughs, "its aliases stand for more than 200000 bytes"},
		{"a long text a thousand times", "a: &a " + strings.Repeat("x", 50_000) + "\nb: [" +
			strings.Repeat("*a, ", 1000) + "]\n", "its aliases stand for more than 200000 bytes"},
		{"a long key a thousand times", "a: &a " + strings.Repeat("x", 50_000) + "\nb: [" +
			strings.Repeat("{*a : 1}, ", 1000) + "]\n", "its aliases stand for more than"},
		{"itself", "a: &a [*a]\n", "or for themselves"},
		{"an alias of nothing", "a: *b\n", "unknown anchor"},
		{"no number of JSON", "a: .nan\n", "NaN"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := yamltree.Decode([]byte(row.text), limit)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, error %v, want one with %q", got, err, row.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line: %q", err)
			}
		})
	}
}

// What is read is no larger than the limit allows, whatever the bytes are.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"a: 1", "a: &x [1]\nb: *x", "a: &a [*a]", "--- \n--- {}", "{\"a\": [null]}", "? - a\n: b",
		"a: &x {b: 1}\nc: {<<: *x}", "%YAML 1.1\n--- !!map {a: !!binary aGk=}", "a: 2001-01-01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 2000
		tree, err := yamltree.Decode(data, limit)
		if err != nil {
			if tree != nil {
				t.Fatalf("a tree beside the error %v", err)
			}
			return
		}
		if size := sizeOf(tree); size > 10*limit {
			t.Fatalf("%q stands for %d bytes", data, size)
		}
		podtree.Clone(tree) // panics at what is not of JSON
	})
}

func sizeOf(value any) int {
	size := 1
	switch value := value.(type) {
	case string:
		size += len(value)
	case []any:
		for _, item := range value {
			size += sizeOf(item)
		}
	case map[string]any:
		for key, item := range value {
			size += len(key) + sizeOf(item)
		}
	}
	return size
}
