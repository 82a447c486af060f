package deployments_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// To Helm, null takes a default away, and so does a key in a values file with nothing behind it.
// What the chart cannot do without is missed by its name; without the rest it renders, and nothing
// in it is empty that was not.
func TestNull(t *testing.T) {
	t.Parallel()
	var schema json.RawMessage
	read(t, "chart/values.schema.json", &schema)
	initial := map[string]any{}
	read(t, "chart/values.yaml", &initial)
	all := defaults(nil, initial, schema)
	if len(all) < 100 {
		t.Fatalf("%d values have a default, want more", len(all))
	}
	usual := empties(t, nulled(t))
	for depth := 1; depth <= 4; depth++ { // a value hides what is within it
		var needed, others []initialValue
		for _, v := range all {
			given := slices.Contains([]string{"image.repository", "injector.enabled"}, v.String())
			switch {
			case len(v.path) != depth || given:
			case v.required:
				needed = append(needed, v)
			default:
				others = append(others, v)
			}
		}
		if empty := empties(t, nulled(t, others...)); !slices.Equal(empty, usual) {
			t.Errorf("without %v there is %q, usually %q", others, empty, usual)
		}
		_, err := renderWithout(t, needed...)
		for _, v := range needed {
			if err == nil || !v.isMissedBy(err) {
				t.Errorf("%s is not missed: %v", v, err)
			}
		}
	}
}

// initialValue is one of values.yaml.
type initialValue struct {
	path     []string
	required bool
}

func (v initialValue) String() string { return strings.Join(v.path, ".") }

// isMissedBy reports whether an error of the schema names the value.
func (v initialValue) isMissedBy(err error) bool {
	of, key := v.path[:len(v.path)-1], v.path[len(v.path)-1]
	where := fmt.Sprintf("at '%s': missing propert", strings.Join(append([]string{""}, of...), "/"))
	for line := range strings.Lines(err.Error()) {
		if strings.Contains(line, where) && strings.Contains(line, "'"+key+"'") {
			return true
		}
	}
	return false
}

// defaults lists the values that have a default.
func defaults(of []string, initial map[string]any, schema json.RawMessage) (all []initialValue) {
	var about struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Then       struct {
			Required []string `json:"required"`
		} `json:"then"`
	}
	_ = json.Unmarshal(schema, &about) // one without properties requires nothing
	for key, value := range initial {
		inner, _ := value.(map[string]any)
		path := append(slices.Clone(of), key)
		all = append(all, initialValue{path,
			slices.Contains(slices.Concat(about.Required, about.Then.Required), key)})
		all = append(all, defaults(path, inner, about.Properties[key])...)
	}
	return all
}

// renderWithout renders the chart, with the injector, without some values.
func renderWithout(t *testing.T, without ...initialValue) (string, error) {
	t.Helper()
	args := []string{"template", "sidecar-cni", "chart", "--namespace=mesh", someImage,
		"--set=injector.enabled=true", "--set=injector.values.global.proxy.image=proxy"}
	for _, v := range without {
		args = append(args, "--set="+v.String()+"=null")
	}
	return helm(t, args...)
}

func nulled(t *testing.T, without ...initialValue) string {
	t.Helper()
	text, err := renderWithout(t, without...)
	if err != nil {
		t.Errorf("without %v: %v", without, err)
	}
	return text
}

// empties lists what a text of manifests has that has no value, but for the fields of which null
// says to the API server that they are not set.
func empties(t *testing.T, text string) (all []string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Error(err)
		}
		all = append(all, emptiesIn("", object)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func emptiesIn(key string, value any) (all []string) {
	switch value := value.(type) {
	case nil:
		if !slices.Contains([]string{"priorityClassName", "revisionHistoryLimit", "tolerations"},
			key) {
			return []string{key}
		}
	case string:
		if strings.HasSuffix(value, "=") || strings.Contains(value, "<nil>") {
			return []string{value}
		}
	case []any:
		for _, item := range value {
			all = append(all, emptiesIn(key, item)...)
		}
	case map[string]any:
		for key, item := range value {
			all = append(all, emptiesIn(key, item)...)
		}
	}
	return all
}
