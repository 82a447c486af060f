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
// print <no value>. A structure cannot be printed, since what comes out would have addresses in it,
// nor a message of the mesh, whose text is not the same in two programs. Methods are the getters of
// messages and of metadata, String, and a few more that only read; any other name is a field's or a
// key's. The order of keys and values is sorted, where sprig's is random. Numbers of all types can
// be compared, where text/template tells 1 from 1.0.
//
// The parser is that of text/template. What executes the text is our own: text/template finds
// methods by name, with which the linker keeps every method of every type in the program, and it
// has no bounds. Tests compare the two.
package render

import (
	"fmt"
	"reflect"
	"strings"
	"text/template/parse"

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
	functions    functionSet // those that the text names
	oldNumbers   bool        // Concurrency is a number
	changesTrees bool        // by functions such as set: what the text is given is a copy
}

// sourceName stands for a template's name inside the parser, whose mistakes quote it.
const sourceName = "inject"

// Parse reads a template. The environment is what its function env reads, and all that it reads.
// All templates that are called and not defined come at once, and so does all that nests too deep
// or has more than a thousand arguments. Mistakes of syntax and unknown functions come one by one.
//
// Be aware: whether a function gets as many arguments as it takes is seen when it is called. With
// Istio, a template works as long as no pod comes to such a mistake, and so it does here.
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
	t, err = newTemplate(name, trees, all)
	if err == nil {
		t.oldNumbers = left == "[["
	}
	return t, err
}

func newTemplate(
	name string, trees map[string]*parse.Tree, all functionSet,
) (*Template, error) {
	c := check{name: name, trees: trees, used: map[string]bool{}}
	if err := c.all(); err != nil {
		return nil, err
	}
	return &Template{
		name:         name,
		trees:        trees,
		functions:    all.only(c.used),
		changesTrees: c.usesOneOf(changing),
	}, nil
}

// Execute returns the text that a template makes of a pod's data.
func (t *Template) Execute(data Data) (text []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			text, err = nil, fmt.Errorf("template %q: cannot be executed: %v", t.name, r)
		}
	}()
	return t.execute(t.fields(data))
}

func (t *Template) execute(data any) ([]byte, error) {
	r := &run{name: t.name, trees: t.trees, functions: t.functions}
	if err := r.template(t.trees[sourceName], reflect.ValueOf(data)); err != nil {
		return nil, err
	}
	return r.text.Bytes(), nil
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
