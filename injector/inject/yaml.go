package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/yamltree"
)

// readYAML reads the text of a template, which package render bounds. Of a key that is there twice
// the last value counts, as in Istio, whose own template yields some; twice is about it.
func readYAML(text []byte) (tree podtree.Object, twice, err error) {
	// What aliases stand for has to be measured, which takes as long as the rest together. Without
	// an anchor there are none.
	if bytes.ContainsRune(text, '&') {
		if err := yamltree.Check(text, maxSize); err != nil {
			return nil, nil, plain(err)
		}
	}
	if tree, ok := readUsual(text); ok {
		return tree, nil, nil
	}
	data, strict := yaml.YAMLToJSONStrict(text)
	if strict != nil {
		if data, err = yaml.YAMLToJSON(text); err != nil {
			return nil, nil, fmt.Errorf("yields no YAML: %w", plain(err))
		}
		twice = fmt.Errorf("%w: the last one counts", plain(strict))
	}
	switch data[0] {
	case '{':
		tree, err = podtree.Decode(data)
		return tree, twice, err
	case 'n': // null
		return nil, nil, errEmpty
	}
	return nil, nil, errors.New("yields a text or a list, want the fields of a pod")
}

var errEmpty = errors.New("yields nothing, want the fields of a pod")

// asDeclared turns numbers and bools into texts where a Go type has texts: Kubernetes wants them so
// in args and env, and templates write them without quotes. It returns the fields that the type
// does not know.
func asDeclared(tree podtree.Object, as reflect.Type) (unknown []kjson.FieldError, err error) {
	c := converter{fields: declared(), texts: true}
	c.convert(tree, as)
	if !c.unknown && !c.doubt {
		return nil, nil
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(data, reflect.New(as).Interface())
	if err != nil {
		return nil, plain(err)
	}
	for _, mistake := range strict {
		var field kjson.FieldError
		if errors.As(mistake, &field) && !directive(field.FieldPath()) {
			unknown = append(unknown, field)
		}
	}
	return unknown, nil
}

// directive reports a field by which a template of today's form steers its merge.
func directive(path string) bool {
	return strings.HasPrefix(path[strings.LastIndexByte(path, '.')+1:], "$")
}

func unknownFields(fields []kjson.FieldError) error {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = strconv.Quote(f.FieldPath())
	}
	return fmt.Errorf("the API's pods have no field %s; correct or remove it",
		strings.Join(names, ", "))
}

// plain makes one line of a decoder's message, without the names of Go's types.
func plain(err error) error {
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, noise := range []string{
		"json: ", "error converting YAML to JSON: ", "yaml: ", "unmarshal errors: ",
	} {
		text = strings.TrimPrefix(text, noise)
	}
	what, where, ok := strings.Cut(text, " into Go struct field ")
	if !ok {
		return fmt.Errorf("%.400s", text) // some quote the whole object
	}
	_, what, _ = strings.Cut(what, "cannot unmarshal ")
	field, want, _ := strings.Cut(where, " of type ")
	_, field, _ = strings.Cut(field, ".") // behind the type's name
	return fmt.Errorf("%s: is %s, want %s", field, wordOf(what), wordOf(want))
}

// wordOf is what people call a type, of JSON or of Go.
func wordOf(kind string) string {
	switch {
	case strings.HasPrefix(kind, "[]"), kind == "array":
		return "a list"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number"
	case kind == "number":
		return "a number"
	case strings.HasPrefix(kind, "number"):
		return "the " + kind
	case kind == "bool":
		return "true or false"
	case kind == "string":
		return "a text"
	}
	return "an object" // of JSON, or a type of the API
}
