package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// wanted is what is to become of a pod.
type wanted struct {
	pod    *pod
	after  podtree.Object // metadata and spec
	record bool           // whether what was replaced is written into it
	by     string         // the command that the record names
	wide   bool           // metadata and spec are written anew as a whole
}

var recordPath = []any{"metadata", "annotations", Annotation}

var errAnchor = errors.New("it cannot be edited as it is written, perhaps since others use " +
	"an anchor (&) in it; write it as plain YAML, without anchors")

// write makes of a document's text one in which its pods are as wanted. What it returns has been
// read again and compared. Where the smallest edits do not do, metadata and spec of a pod are
// written anew.
func (d *document) write(all []wanted) ([]byte, error) {
	text, err := d.edit(all)
	if err == nil {
		return text, nil
	}
	for _, i := range d.culprits(all) {
		all[i].wide = true
	}
	if text, err = d.edit(all); err == nil {
		return text, nil
	}
	for i := range all {
		all[i].wide = true
	}
	if text, err = d.edit(all); err == nil {
		return text, nil
	}
	if bytes.Contains(d.text, []byte("&")) {
		err = errAnchor
	}
	first := 0 // all of them, if each alone can be written
	if culprits := d.culprits(all); len(culprits) > 0 {
		first = culprits[0]
	}
	return nil, fmt.Errorf("%s: %w", all[first].pod.Where, err)
}

// culprits returns the indices of the pods which alone cannot be edited as they should be.
func (d *document) culprits(all []wanted) []int {
	if len(all) == 0 {
		return nil
	}
	if _, err := d.edit(all); err == nil {
		return nil
	}
	if len(all) == 1 {
		return []int{0}
	}
	half := len(all) / 2
	found := d.culprits(all[:half])
	for _, i := range d.culprits(all[half:]) {
		found = append(found, half+i)
	}
	return found
}

// edit is one attempt. A pod whose record turns out to be too long gets none.
func (d *document) edit(all []wanted) ([]byte, error) {
	text, err := d.attempt(all)
	for errors.Is(err, errLong) {
		text, err = d.attempt(all) // fewer have a record each time
	}
	return text, err
}

func (d *document) attempt(all []wanted) ([]byte, error) {
	tree := d.expect(all)
	e := &editor{text: d.text, style: styleOf(d), done: map[string]bool{}}
	for i, one := range all {
		e.pod, e.wide = i, one.wide
		if err := e.follow(d.root, one.pod.path, d.tree, tree); err != nil {
			return nil, err
		}
	}
	edits, err := sorted(e.edits, len(d.text))
	if err != nil {
		return nil, err
	}
	text := apply(d.text, edits)
	text, err = d.record(text, all, oldTexts(d.text, edits, len(all)))
	if err != nil {
		return nil, err
	}
	return text, d.verify(text, all)
}

// expect returns the document's tree with the pods as wanted, their records empty.
func (d *document) expect(all []wanted) podtree.Object {
	tree := podtree.Clone(d.tree)
	for _, one := range all {
		body, _ := valueAt(tree, one.pod.path).(podtree.Object)
		for _, key := range podKeys {
			delete(body, key)
			if value, ok := one.after[key]; ok {
				body[key] = runtime.DeepCopyJSONValue(value)
			}
		}
		if one.record {
			podtree.Set(body, "", "metadata", "annotations", Annotation)
		}
	}
	return tree
}

// record fills the records of a text in which they are empty. A pod whose record is too long has
// none afterwards: all is edited again without it.
func (d *document) record(text []byte, all []wanted, old [][]oldText) ([]byte, error) {
	var places []*node
	var edits []edit
	long := false
	original := digest(d.text)
	for i := range all {
		if !all[i].record {
			continue
		}
		if places == nil {
			nodes, err := d.places(text, all)
			if err != nil {
				return nil, err
			}
			places = nodes
		}
		ours := podtree.Clone(all[i].after)
		podtree.Set(ours, "", "metadata", "annotations", Annotation)
		r := record{By: all[i].by, Original: original, Edits: old[i],
			Undo: undoOf(all[i].pod.Pod, ours, true, true)}
		value, err := r.pack()
		if errors.Is(err, errLong) {
			all[i].record, long = false, true
			continue
		}
		if err != nil {
			return nil, err
		}
		edits = append(edits, edit{span: span{places[i].body, places[i].end},
			text: quote(value)})
	}
	if long {
		return nil, errLong
	}
	edits, err := sorted(edits, len(text))
	if err != nil {
		return nil, err
	}
	return apply(text, edits), nil
}

// places returns where the records of a text stand.
func (d *document) places(text []byte, all []wanted) ([]*node, error) {
	root, err := rootOf(text, d.json)
	if err != nil {
		return nil, err
	}
	places := make([]*node, len(all))
	for i, one := range all {
		if !one.record {
			continue
		}
		if places[i] = root.at(with(one.pod.path, recordPath...)); places[i] == nil {
			return nil, errForm
		}
	}
	return places, nil
}

func rootOf(text []byte, isJSON bool) (*node, error) {
	if isJSON {
		return jsonNode(text)
	}
	root, err := parseYAML(text)
	if err != nil || root == nil {
		return nil, errors.Join(err, errForm)
	}
	return yamlNode(text, root)
}

// verify reads a text again and compares it with what was wanted.
func (d *document) verify(text []byte, all []wanted) error {
	written, err := read(text, d.json)
	if err != nil {
		return errForm
	}
	for _, one := range all {
		if !one.record {
			continue
		}
		body, _ := valueAt(written.tree, one.pod.path).(podtree.Object)
		if podtree.String(body, "metadata", "annotations", Annotation) == "" {
			return errForm
		}
		podtree.Set(body, "", "metadata", "annotations", Annotation)
	}
	if !reflect.DeepEqual(written.tree, d.expect(all)) {
		return errForm
	}
	return nil
}
