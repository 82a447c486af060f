package deployments_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// To Helm, null takes a default away, and so does a key in a values file with nothing behind it.
// What the chart cannot do without is missed by name; without the rest it renders.
func TestNull(t *testing.T) {
	t.Parallel()
	var schema json.RawMessage
	read(t, "chart/values.schema.json", &schema)
	initial := map[string]any{}
	read(t, "chart/values.yaml", &initial)
	var needed, others []string
	for path, required := range defaults("", initial, schema) {
		switch {
		case required:
			needed = append(needed, path)
		case path != "image.repository" && path != "injector.enabled": // given below
			others = append(others, path)
		}
	}
	if len(needed) < 20 || len(others) < 40 {
		t.Fatalf("%d values are required and %d are not, want more", len(needed), len(others))
	}
	render := func(nulls []string) (string, error) {
		args := []string{"template", "sidecar-cni", "chart", "--namespace=mesh", someImage,
			"--set=injector.enabled=true", "--set=injector.values.global.proxy.image=proxy"}
		for _, path := range nulls {
			args = append(args, "--set="+path+"=null")
		}
		return helm(t, args...)
	}
	text, err := render(others)
	if err != nil {
		t.Errorf("without %s: %v", others, err)
	}
	usual, err := render(nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		empty := strings.HasSuffix(line, "=\n") || strings.Contains(line, "<nil>")
		if empty && !strings.Contains(usual, line) {
			t.Errorf("without what is not required there is %q", line)
		}
	}
	_, err = render(needed)
	if err == nil {
		t.Fatal("without what is required it renders")
	}
	for _, path := range needed {
		key := path[strings.LastIndex(path, ".")+1:]
		if !strings.Contains(err.Error(), "'"+key+"'") {
			t.Errorf("%s is not missed: %v", path, err)
		}
	}
}

// defaults lists the values that have a default, and whether they are required. Of a value that has
// required ones within it, those stand for it.
func defaults(prefix string, initial map[string]any, schema json.RawMessage) map[string]bool {
	var of struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(schema, &of) // one without properties requires nothing
	all := map[string]bool{}
	for key, value := range initial {
		inner, _ := value.(map[string]any)
		within := defaults(prefix+key+".", inner, of.Properties[key])
		maps.Copy(all, within)
		required := slices.Contains(of.Required, key)
		hidden := len(within) > 0 &&
			(!required || slices.Contains(slices.Collect(maps.Values(within)), true))
		if !hidden {
			all[prefix+key] = required
		}
	}
	return all
}
