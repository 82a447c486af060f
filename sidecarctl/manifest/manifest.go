// Package manifest changes the pods of a file of manifests. What does not change stays byte for
// byte, comments included.
//
//	out, err := manifest.Rewrite("web.yaml", data, "inject", change)
//	back, err := manifest.Restore("web.yaml", out.Data, foreign) // back.Data is data
//
// What was replaced is kept in an annotation of the pod's template. Restore gives the file's own
// text back as long as a document is as it was written; else, say after it went through the API
// server, it takes out what was put in, field by field, and leaves what others changed since.
//
// Be aware: a document is an object to kubectl before it is one to us. Its values are read by the
// library that kubectl uses; a key that is there twice is refused; and where YAML merges (<<), what
// changes is written out at its place.
package manifest

import (
	"fmt"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// Annotation holds, in a pod's template, what was replaced there.
const Annotation = "sidecar-cni.io/replaced"

// Workload is an object with a pod template, or a pod.
type Workload struct {
	APIVersion string         // of the object
	Kind       string         // of the object
	Metadata   podtree.Object // of the object
	Pod        podtree.Object // metadata and spec of the template; of a pod, its own
	Where      string         // for people: document 2, Deployment shop/web, spec.template
}

// Change returns what becomes of a workload's pod; nil leaves it as it is. The pod that it is given
// is as the file's author wrote it, without what an earlier Rewrite put in: nil for a pod that was
// changed earlier means that the file gets the author's pod back.
//
// Of what it returns, metadata and spec count. It may change the pod that it is given.
type Change func(Workload) (podtree.Object, error)

// Output is a file, changed.
type Output struct {
	Data     []byte           // the whole file
	Warnings []string         // for whoever asked
	Others   []podtree.Object // of the file: what has no pod, such as a Service
}

// Rewrite changes the pods of a file in YAML or JSON. The mistakes of all documents come at once.
//
// by is the command that does it. A document that another command has changed stays as it is, with
// a warning: change would see the author's pod, and what the other command did would be lost.
func Rewrite(name string, data []byte, by string, change Change) (Output, error) {
	f := &file{verb: "change", name: name, by: by}
	return f.run(data, func(d *document) *document {
		if other := d.recordedBy(); other != "" && other != by {
			f.note([]string{fmt.Sprintf("%s: %s has changed it: it stays as it is; to begin from "+
				"the original, take that out by uninject first", d.pods[0].Where, other)}, nil)
			return d
		}
		before, warnings, mistakes := d.restore()
		f.note(warnings, mistakes)
		if len(mistakes) > 0 {
			return d
		}
		return f.rewrite(before, change)
	})
}

// Restore takes out of a file what Rewrite put in. A pod that foreign calls another tool's is a
// mistake.
func Restore(name string, data []byte, foreign func(Workload) bool) (Output, error) {
	f := &file{verb: "restore", name: name}
	return f.run(data, func(d *document) *document {
		before, warnings, mistakes := d.restore()
		f.note(warnings, mistakes)
		for _, p := range d.pods {
			if !p.hasRecord() && foreign(p.Workload) {
				f.mistake(p.Where + ": it was filled by another tool, or without annotation " +
					Annotation + "; take the file that it was made of")
			}
		}
		return before
	})
}
