package manifest

import (
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// hasRecord reports whether an earlier Rewrite changed a pod.
func (p *pod) hasRecord() bool {
	_, ok := podtree.Map(p.Pod, "metadata", "annotations")[Annotation]
	return ok
}

// recordedBy returns the command that changed a document; "" if none did, or its records cannot be
// read, which restore reports.
func (d *document) recordedBy() string {
	for _, p := range d.pods {
		if r, err := unpack(podtree.Get(p.Pod, "metadata", "annotations", Annotation)); err == nil {
			return r.By
		}
	}
	return ""
}

// restore returns a document as it was before an earlier Rewrite, or itself.
func (d *document) restore() (*document, []string, []error) {
	var pods []*pod
	var records []*record
	var mistakes []error
	for _, p := range d.pods {
		if !p.hasRecord() {
			continue
		}
		r, err := unpack(podtree.Get(p.Pod, "metadata", "annotations", Annotation))
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: annotation %s is not what inject "+
				"writes: %w; take the file that it was made of", p.Where, Annotation, err))
			continue
		}
		pods, records = append(pods, p), append(records, r)
	}
	if len(mistakes) > 0 || len(pods) == 0 {
		return d, nil, mistakes
	}
	if text := d.unchanged(pods, records); text != nil {
		before, err := read(text, d.json)
		if err != nil {
			before, err = read(text, !d.json) // {a: } is no JSON until it has a value
		}
		if err == nil {
			return before, nil, nil
		}
	}
	before, warnings, err := d.revert(pods, records)
	if err != nil {
		return d, nil, []error{err}
	}
	return before, warnings, nil
}

// unchanged returns the text that the document had; nil if it is not as it was written.
func (d *document) unchanged(pods []*pod, records []*record) []byte {
	var edits []edit
	for _, p := range pods {
		place := d.root.at(with(p.path, recordPath...))
		if place == nil {
			return nil
		}
		edits = append(edits, edit{span: span{place.start, place.end}, text: `""`})
	}
	edits, err := sorted(edits, len(d.text))
	if err != nil {
		return nil
	}
	return original(apply(d.text, edits), records)
}

// revert takes out what was put in of a document that others have changed since.
func (d *document) revert(pods []*pod, records []*record) (*document, []string, error) {
	var warnings []string
	all := make([]wanted, 0, len(pods))
	for i, p := range pods {
		ours := podtree.Clone(p.Pod)
		podtree.Set(ours, "", "metadata", "annotations", Annotation)
		r := &reverter{}
		before, _ := r.value(records[i].Undo, "", ours, true)
		after, ok := before.(podtree.Object)
		if !ok {
			return nil, nil, fmt.Errorf("%s: annotation %s does not fit it; "+
				"take the file that it was made of", p.Where, Annotation)
		}
		podtree.Delete(after, "metadata", "annotations", Annotation)
		for _, field := range r.left {
			warnings = append(warnings, fmt.Sprintf("%s: %s was changed since by others; "+
				"it stays as it is", p.Where, foreign.Name(field)))
		}
		all = append(all, wanted{pod: p, after: after})
	}
	text, err := d.write(all)
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, commentsLost(all)...)
	before, err := read(text, d.json)
	return before, warnings, err
}

func commentsLost(all []wanted) []string {
	var warnings []string
	for _, one := range all {
		if one.wide {
			warnings = append(warnings, one.pod.Where+": metadata and spec were written anew; "+
				"their comments are lost")
		}
	}
	return warnings
}
