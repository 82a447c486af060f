// Package render is the language of injection templates: what they can name, what they can call,
// and within which bounds they run.
//
//	t, err := render.Parse("sidecar", text, render.Today, nil)
//	pod, err := t.Execute(render.Data{ObjectMeta: meta, Spec: spec, ProxyConfig: proxy})
//
// A template sees its data and nothing else: no environment, no file, no clock and no randomness.
// The same data give the same text. A template that runs too long, nests too deep or makes too much
// text ends with an error; the bounds count work and not time, so that they hold alike everywhere.
//
// Be aware: the language is that of text/template with Istio's functions and the repeatable ones of
// sprig, with these differences. What is not set cannot be printed, where text/template would
// print <no value>. A structure cannot be printed, since what comes out would have addresses in it.
// Methods are the getters, String, and a few more that only read. The order of keys and values is
// sorted, where sprig's is random.
package render

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

// Data is what a template can name.
type Data struct {
	TypeMeta       metav1.TypeMeta   // of the workload
	DeploymentMeta metav1.ObjectMeta // name and namespace of the workload
	ObjectMeta     metav1.ObjectMeta // of the pod
	Spec           corev1.PodSpec    // of the pod
	ProxyConfig    *mesh.ProxyConfig // the mesh's, with what the pod's annotation sets; nil: none
	MeshConfig     *mesh.MeshConfig  // nil: none
	Values         map[string]any    // of Istio's chart
	Revision       string            // of the control plane
	NativeSidecars bool              // proxies are init containers that restart always

	ProxyImage, ProxyInitImage string // of istio-proxy and istio-init
	ProxyUID, ProxyGID         int64  // that the proxy runs as
	InboundTrafficPolicyMode   string // localhost or passthrough
	CompliancePolicy           string // such as fips-140-2; empty: none
}

// Form says which of the two languages a template is in.
type Form int

// The forms of a template.
const (
	Seeds Form = iota // key template: [[ ]] if the text has them, else {{ }}
	Today             // key templates: {{ }}
)

// Template is a parsed text. It can be executed by several goroutines.
type Template struct {
	name         string
	trees        map[string]*parse.Tree
	functions    []callable // those that the text names
	oldNumbers   bool       // Concurrency is a number
	changesTrees bool       // by functions such as set: what the text is given is a copy
}

// sourceName stands for a template's name inside text/template, whose errors quote it.
const sourceName = "inject"

// Parse reads a template. The environment is what its function env reads, and all that it reads.
// All mistakes that can be seen without data come at once, but for those of syntax, of which
// the first one comes alone.
func Parse(
	name, text string, form Form, environment map[string]string,
) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("template %q: cannot be parsed: %v", name, r)
		}
	}()
	if len(text) > maxSource {
		return nil, fmt.Errorf("template %q: has %d bytes: want at most %d", name, len(text),
			maxSource)
	}
	left, right := "{{", "}}"
	if form == Seeds && strings.Contains(text, "[[") {
		left, right = "[[", "]]"
	}
	all, err := functionsFor(environment)
	if err != nil {
		return nil, fmt.Errorf("template %q: %w", name, err)
	}
	trees, err := parse.Parse(sourceName, text, left, right, all.names())
	if err != nil {
		return nil, parseMistake(name, err)
	}
	w := walk{name: name, trees: trees, used: map[string]bool{}}
	if err := w.all(); err != nil {
		return nil, err
	}
	return &Template{
		name:         name,
		trees:        trees,
		functions:    all.callables(w.used),
		oldNumbers:   left == "[[",
		changesTrees: w.usesOneOf(changing),
	}, nil
}

// Execute returns the text that a template makes of a pod's data.
func (t *Template) Execute(data Data) (text []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			text, err = nil, fmt.Errorf("template %q: cannot be executed: %v", t.name, r)
		}
	}()
	r := &run{data: data}
	functions := r.bookkeeping()
	for _, c := range t.functions {
		functions[c.name] = c.bind(r).Interface()
	}
	executable := template.New(sourceName).Funcs(functions)
	for name, tree := range t.trees {
		if _, err := executable.AddParseTree(name, tree); err != nil {
			return nil, fmt.Errorf("template %q: %w", t.name, err)
		}
	}
	out := &output{}
	if err := executable.Execute(out, t.fields(data)); err != nil {
		return nil, executeMistake(t.name, err)
	}
	return out.text.Bytes(), nil
}

// textWork is the work of String on the largest structure of the data: nobody knows before the
// call whose method it is. It grows with the square, since Kubernetes' types append each item of a
// list to the text of those before it.
func textWork(data Data) int {
	largest := max(data.Spec.Size(), data.ObjectMeta.Size())
	if data.MeshConfig != nil {
		largest = max(largest, proto.Size(data.MeshConfig.MeshConfig))
	}
	if data.ProxyConfig != nil {
		largest = max(largest, proto.Size(data.ProxyConfig.ProxyConfig))
	}
	return largest / structPiece * (largest / structPiece)
}

// output collects a template's text, up to the bound.
type output struct{ text bytes.Buffer }

// Write refuses what would make the text too long.
func (o *output) Write(p []byte) (int, error) {
	if o.text.Len()+len(p) > maxText {
		return 0, bound("yields over %d bytes: shorten what it prints, or the data", maxText)
	}
	return o.text.Write(p)
}

// fields are Data as the templates see them.
type fields struct {
	TypeMeta                   metav1.TypeMeta
	DeploymentMeta             metav1.ObjectMeta
	ObjectMeta                 metav1.ObjectMeta
	Spec                       corev1.PodSpec
	ProxyConfig                any // of the mesh's two types the one that the form has
	MeshConfig                 *mesh.MeshConfig
	Values                     map[string]any
	Revision                   string
	NativeSidecars             bool
	ProxyImage, ProxyInitImage string
	ProxyUID, ProxyGID         int64
	InboundTrafficPolicyMode   string
	CompliancePolicy           string
}

// fields readies data for the template. Nothing that it does to them reaches the caller.
func (t *Template) fields(data Data) *fields {
	f := &fields{
		TypeMeta: data.TypeMeta, DeploymentMeta: withoutTimes(data.DeploymentMeta),
		ObjectMeta: withoutTimes(data.ObjectMeta), Spec: data.Spec, MeshConfig: data.MeshConfig,
		Values: data.Values, Revision: data.Revision, NativeSidecars: data.NativeSidecars,
		ProxyImage: data.ProxyImage, ProxyInitImage: data.ProxyInitImage,
		ProxyUID: data.ProxyUID, ProxyGID: data.ProxyGID,
		InboundTrafficPolicyMode: data.InboundTrafficPolicyMode,
		CompliancePolicy:         data.CompliancePolicy,
	}
	if f.MeshConfig == nil {
		f.MeshConfig = &mesh.MeshConfig{MeshConfig: &meshconfig.MeshConfig{}}
	}
	proxy := data.ProxyConfig
	if proxy == nil {
		proxy = &mesh.ProxyConfig{ProxyConfig: &meshconfig.ProxyConfig{}}
	}
	f.ProxyConfig = proxy
	if t.oldNumbers {
		f.ProxyConfig = proxy.ForSeeds()
	}
	if t.changesTrees {
		f.Values, _ = copyTree(data.Values).(map[string]any)
	}
	return f
}

// withoutTimes drops the times of an object: read from JSON they are in the machine's own time
// zone, which would show in the text.
func withoutTimes(meta metav1.ObjectMeta) metav1.ObjectMeta {
	meta.CreationTimestamp, meta.DeletionTimestamp = metav1.Time{}, nil
	meta.ManagedFields = nil
	return meta
}

// copyTree copies a tree of maps and lists.
func copyTree(value any) any {
	switch value := value.(type) {
	case map[string]any:
		tree := make(map[string]any, len(value))
		for key, item := range value {
			tree[key] = copyTree(item)
		}
		return tree
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = copyTree(item)
		}
		return list
	}
	return value
}
