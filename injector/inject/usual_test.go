package inject

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// throughJSON is what YAML means to Kubernetes: what its JSON does.
func throughJSON(text []byte) (podtree.Object, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	return podtree.Decode(data)
}

// What is read without JSON is what JSON would make of it.
func TestUsualYAML(t *testing.T) {
	t.Parallel()
	for text, usual := range map[string]bool{
		"a: {b: [1, x, true, null, '']}\nc:\n- d: -5\n": true,
		"a: &x {b: 1}\nc: *x":                           true,
		"a: &x {b: 1}\nc: {<<: *x, d: 2}":               true,
		"a: 0x10\nb: 1_000\nc: '1'":                     true,
		"a: 2001-01-01\nb: 10:20:30":                    true,
		"{}":                                            true,
		"a: 1.5":                                        false,
		"a: 1.0":                                        false,
		"1: a":                                          false,
		"true: a":                                       false,
		"a: 18446744073709551615":                       false,
		"a: !!binary /w==":                              false,
		"!!binary /w==: a":                              false,
		"a: 1\na: 2":                                    false,
		"a: [":                                          false,
		"[a]":                                           false,
		"null":                                          false,
		"":                                              false,
	} {
		if _, ok := readUsual([]byte(text)); ok != usual {
			t.Errorf("%q is read: %v, want %v", text, ok, usual)
		}
		checkUsual(t, []byte(text))
	}
}

func checkUsual(t *testing.T, text []byte) {
	t.Helper()
	got, ok := readUsual(text)
	if !ok {
		return
	}
	want, err := throughJSON(text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%q: error %v (-through JSON +directly):\n%s", text, err, diff)
	}
}

func FuzzUsualYAML(f *testing.F) {
	for _, name := range []string{"istio-1.1.yaml", "today-values.yaml"} {
		text, err := os.ReadFile(filepath.Join("render", "testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &x {b: 1, ? 3 : 4}\nc: {<<: *x, d: 2.0}\ne: !!str 1\nf: !!binary /w==\ng: .inf"))
	f.Fuzz(checkUsual)
}
