// Package yamltree reads YAML or JSON that anybody may have written as the tree of its JSON.
//
//	tree, err := yamltree.Decode(data, 64<<10)
//
// Be aware: an alias of YAML stands for all that its anchor holds, so that a short document can
// mean gigabytes. What a document holds once its aliases are replaced is bounded, too.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// Decode reads a document of at most limit bytes, whose top is keys with values. An empty document
// is nil. A key that is there twice is a mistake, and so is a second document.
func Decode(data []byte, limit int) (podtree.Object, error) {
	if len(data) > limit {
		return nil, fmt.Errorf("it has %d bytes, want at most %d", len(data), limit)
	}
	if err := Check(data, limit); err != nil {
		return nil, err
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, errors.New(oneLine(err))
	}
	switch text[0] {
	case 'n': // null
		return nil, nil
	case '{':
		return podtree.Decode(text)
	default:
		return nil, errors.New("want keys with values, such as policy: enabled")
	}
}

// Check reports what must not reach the conversion to JSON, which writes out each alias and passes
// over all documents but the first: more than twice limit bytes, or a second document.
func Check(data []byte, limit int) error {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	for documents := 0; ; {
		var document yamlv3.Node
		err := decoder.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New(oneLine(err))
		}
		if isNull(&document) {
			if documents == 0 {
				documents++ // an empty first one is all that the conversion sees
			}
			continue
		}
		if documents++; documents > 1 {
			return errors.New("there is a second document behind ---; want one")
		}
		s := scale{limit: 2 * limit, known: map[*yamlv3.Node]int{}}
		if s.weigh(&document) > s.limit {
			return fmt.Errorf("its aliases stand for more than %d bytes, or for themselves; "+
				"write them out", s.limit)
		}
	}
}

func isNull(document *yamlv3.Node) bool {
	return len(document.Content) == 1 && document.Content[0].Tag == "!!null"
}

// scale adds up what a document holds once its aliases are replaced.
type scale struct {
	limit int
	known map[*yamlv3.Node]int // anchors; over the limit while they are weighed
}

// weigh returns the bytes of a node and of what is in it. It stops adding above the limit.
func (s *scale) weigh(n *yamlv3.Node) int {
	if n.Kind == yamlv3.AliasNode {
		if _, ok := s.known[n.Alias]; !ok {
			s.weigh(n.Alias)
		}
		return s.known[n.Alias]
	}
	if n.Anchor != "" {
		s.known[n] = s.limit + 1
	}
	sum := 1 + len(n.Value)
	for _, child := range n.Content {
		if sum > s.limit {
			break
		}
		sum += s.weigh(child)
	}
	if n.Anchor != "" {
		s.known[n] = sum
	}
	return sum
}

// oneLine makes a sentence of a parser's message.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.TrimPrefix(text, "yaml: ")
}
