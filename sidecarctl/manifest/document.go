package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

var errExpanded = fmt.Errorf("with its aliases expanded it is larger than %d MiB; "+
	"write it without aliases", bounded.Manifest>>20)

// document is one of a file.
type document struct {
	text []byte
	json bool
	tree podtree.Object // nil if it is empty
	root *node
	pods []*pod
	size int // with its aliases expanded

	others []podtree.Object // what has no pod
}

// read reads a document in two ways: what its values are, by the library that kubectl uses, and
// where they stand.
func read(text []byte, isJSON bool) (*document, error) {
	d := &document{text: text, json: isJSON}
	var err error
	if isJSON {
		err = d.readJSON()
	} else {
		err = d.readYAML()
	}
	if err != nil {
		return nil, err
	}
	f := finder{}
	f.object(d.tree, origin{})
	d.pods, d.others = f.pods, f.others
	return d, nil
}

func (d *document) readJSON() error {
	var tree any
	twice, err := kjson.UnmarshalStrict(d.text, &tree, kjson.DisallowDuplicateFields)
	if err != nil {
		return fmt.Errorf("not valid JSON: %s", foreign.Line(err.Error()))
	}
	if len(twice) > 0 {
		return fmt.Errorf("%s; keep one of them", foreign.Line(twice[0].Error()))
	}
	if d.tree, err = object(tree); err == nil && d.tree != nil {
		d.root, err = jsonNode(d.text)
	}
	return err
}

func (d *document) readYAML() error {
	root, err := parseYAML(d.text)
	if err != nil || root == nil {
		return err
	}
	d.size = sizes{}.of(root)
	tree, err := yamlTree(d.text)
	if err != nil {
		return err
	}
	if d.tree, err = object(tree); err == nil && d.tree != nil {
		d.root, err = yamlNode(d.text, root)
	}
	return err
}

func object(tree any) (podtree.Object, error) {
	switch tree := tree.(type) {
	case nil:
		return nil, nil
	case podtree.Object:
		return tree, nil
	case []any:
		return nil, errors.New("it is a list; want an object with apiVersion and kind")
	}
	return nil, errors.New("it is a single value; want an object with apiVersion and kind")
}

// parseYAML returns the node of a document; nil if there is none.
func parseYAML(text []byte) (*yaml.Node, error) {
	var first, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		if err = decoder.Decode(&second); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = errors.New("a second document begins without ---; put one before it")
		}
	}
	if err != nil {
		return nil, notYAML(text, err)
	}
	if len(first.Content) != 1 {
		return nil, nil
	}
	if (sizes{}).of(first.Content[0]) > bounded.Manifest {
		return nil, errExpanded
	}
	return first.Content[0], nil
}

// yamlTree returns the values of a document, as kubectl reads them.
func yamlTree(text []byte) (any, error) {
	data, err := kyaml.YAMLToJSON(text)
	if err != nil {
		return nil, notYAML(text, err)
	}
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &tree); err != nil {
		return nil, notYAML(text, err)
	}
	return tree, nil
}

func notYAML(text []byte, err error) error {
	hint := ""
	if bytes.Contains(text, []byte("{{")) {
		hint = "; a template of a chart has to be rendered first, by helm template"
	}
	cause := strings.TrimPrefix(err.Error(), "yaml: ")
	return fmt.Errorf("not valid YAML: %s%s", foreign.Line(cause),
		hint)
}

// sizes are those of what has an alias, with all aliases in it expanded.
type sizes map[*yaml.Node]int

// of returns how large a node is, as JSON, at least. What contains itself is too large.
func (s sizes) of(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		size, known := s[n.Alias]
		if !known {
			s[n.Alias] = bounded.Manifest + 1 // until it is known: an alias to itself
			size = s.of(n.Alias)
			s[n.Alias] = size
		}
		return size
	}
	size := len(n.Value) + 1
	for _, content := range n.Content {
		if size += s.of(content); size > bounded.Manifest {
			return bounded.Manifest + 1
		}
	}
	return size
}
