package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/foreign"
)

// file is one on its way through this package.
type file struct {
	verb, name string
	by         string // the command that changes it
	number     int    // of the document, from 1; 0 if there is one only
	warnings   []string
	mistakes   []error
	others     []podtree.Object
}

// errGrown is of a file that could not be read again, to be changed once more or restored.
var errGrown = fmt.Errorf("with what is put in it is larger than %d MiB; split it",
	bounded.Manifest>>20)

// run passes each document through one and puts the file together again.
func (f *file) run(data []byte, one func(*document) *document) (Output, error) {
	var out bytes.Buffer
	parts, isJSON, err := f.split(data)
	if err != nil {
		f.note(nil, []error{err})
	}
	if bytes.HasPrefix(data, []byte(byteOrderMark)) {
		out.WriteString(byteOrderMark)
	}
	size := 0
	for i, part := range parts {
		if len(parts) > 1 {
			f.number = i + 1
		}
		d, err := read(part, isJSON)
		if err != nil {
			f.note(nil, []error{err})
			continue
		}
		// What has no alias may count for more than its text: an empty value counts, too.
		if size += d.size; size > 2*bounded.Manifest {
			f.note(nil, []error{errExpanded})
			break
		}
		f.others = append(f.others, d.others...)
		if len(d.pods) > 0 {
			d = one(d)
		}
		out.Write(d.text)
	}
	if f.number = 0; out.Len() > max(bounded.Manifest, len(data)) {
		f.note(nil, []error{errGrown})
	}
	if len(f.mistakes) > 0 {
		return Output{}, errors.Join(f.mistakes...)
	}
	return Output{Data: out.Bytes(), Warnings: f.warnings, Others: f.others}, nil
}

// split cuts a file into documents. What begins as JSON is tried as JSON: it may be YAML all the
// same, as JSON documents with --- between them are.
func (f *file) split(data []byte) (parts [][]byte, isJSON bool, err error) {
	if len(data) > bounded.Manifest {
		return nil, false, fmt.Errorf("it is larger than %d MiB; split it", bounded.Manifest>>20)
	}
	if !utf8.Valid(data) {
		return nil, false, errors.New("it is not UTF-8 text; convert it")
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	start := bytes.TrimSpace(data)
	if bytes.HasPrefix(start, []byte("{")) && !bytes.HasPrefix(start, []byte("{{")) {
		parts, syntax := splitJSON(data)
		if syntax == nil {
			return parts, true, nil
		}
		parts = splitYAML(data)
		if len(parts) == 1 {
			if _, err := parseYAML(data); err != nil {
				return nil, false, syntax
			}
		}
		return parts, false, nil
	}
	return splitYAML(data), false, nil
}

// place says of which document a message is.
func (f *file) place(message string) string {
	if f.number > 0 {
		return fmt.Sprintf("document %d, %s", f.number, message)
	}
	return message
}

func (f *file) note(warnings []string, mistakes []error) {
	for _, warning := range warnings {
		f.warnings = append(f.warnings, f.place(warning))
	}
	for _, mistake := range mistakes {
		cause := &located{text: f.place(mistake.Error()), cause: mistake}
		f.mistakes = append(f.mistakes, fmt.Errorf("%s %q: %w", f.verb, foreign.Cut(f.name), cause))
	}
}

func (f *file) mistake(text string) { f.note(nil, []error{errors.New(text)}) }

// located is an error with its place in the file.
type located struct {
	text  string
	cause error
}

func (l *located) Error() string { return l.text }

func (l *located) Unwrap() error { return l.cause }

// rewrite changes the pods of a document, which is as its author wrote it.
func (f *file) rewrite(d *document, change Change) *document {
	var all []wanted
	failed := len(f.mistakes)
	for _, p := range d.pods {
		after, err := f.changed(p, change)
		if err != nil {
			f.note(nil, []error{fmt.Errorf("%s: %w", p.Where, err)})
		} else if after != nil {
			all = append(all, wanted{pod: p, after: after, record: true, by: f.by})
		}
	}
	if len(all) == 0 || len(f.mistakes) > failed {
		return d
	}
	text, err := d.write(all)
	if err != nil {
		f.note(nil, []error{err})
		return d
	}
	f.note(commentsLost(all), nil)
	for _, one := range all {
		if !one.record {
			f.note([]string{fmt.Sprintf("%s: %s: there is no annotation %s, so uninject "+
				"cannot undo this; keep the file", one.pod.Where, errLong, Annotation)}, nil)
		}
	}
	return &document{text: text}
}

// changed returns what is to become of a pod; nil if nothing does.
func (f *file) changed(p *pod, change Change) (podtree.Object, error) {
	w := p.Workload
	w.Pod = podtree.Clone(w.Pod)
	w.Where = f.place(w.Where)
	after, err := change(w)
	if err != nil || after == nil {
		return nil, err
	}
	if after, err = normal(podOf(after)); err != nil {
		return nil, err
	}
	for _, field := range [][]string{{"metadata"}, {"metadata", "annotations"}} {
		value := podtree.Get(after, field...)
		if _, ok := value.(podtree.Object); !ok && value != nil {
			return nil, fmt.Errorf("%s: want a mapping", strings.Join(field, "."))
		}
	}
	if reflect.DeepEqual(after, p.Pod) {
		return nil, nil
	}
	return after, nil
}

// normal returns a tree as it is read: a number without a fraction is whole.
func normal(tree podtree.Object) (podtree.Object, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("write the pod: %w", err)
	}
	return podtree.Decode(data)
}
