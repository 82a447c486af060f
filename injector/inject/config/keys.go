package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// Key is a key of the configuration, for the documentation.
type Key struct {
	Name  string // with a dot between an outer key and one within
	About string // a sentence or two
}

// Keys returns the keys of the configuration, in the order in which people read them.
func Keys() []Key {
	var all []Key
	for _, k := range configKeys {
		all = append(all, Key{k.name, k.about})
	}
	for _, k := range settingKeys {
		all = append(all, Key{"sidecarCNI." + k.name, k.about})
	}
	return all
}

// raw is the injector's configuration as it is written.
type raw struct {
	Policy               string                 `json:"policy"`
	Template             *string                `json:"template"`
	Templates            map[string]string      `json:"templates"`
	DefaultTemplates     []string               `json:"defaultTemplates"`
	Aliases              map[string][]string    `json:"aliases"`
	NeverInjectSelector  []metav1.LabelSelector `json:"neverInjectSelector"`
	AlwaysInjectSelector []metav1.LabelSelector `json:"alwaysInjectSelector"`
	InjectedAnnotations  map[string]string      `json:"injectedAnnotations"`
	Own                  map[string]any         `json:"sidecarCNI"`
}

// key reads the value of one key into T.
type key[T any] struct {
	name, want, about string
	field             func(*T) any
}

var configKeys = []key[raw]{
	{"policy", "enabled or disabled",
		"enabled or disabled: whether a pod is injected that nothing else is said about. It must " +
			"be there.",
		func(r *raw) any { return &r.Policy }},
	{"template", "text",
		"The template in the form of Istio 1.0 and 1.1: containers, volumes and what else is put " +
			"into a pod. There is either this or templates.",
		func(r *raw) any { return &r.Template }},
	{"templates", "texts by name, such as sidecar: |",
		"Templates in today's form, by name: pods that are merged into the pod. Beside them " +
			"Istio's chart has a template that says nothing but that versions differ; it is " +
			"passed over.",
		func(r *raw) any { return &r.Templates }},
	{"defaultTemplates", "a list of names, such as [sidecar]",
		"Names of the templates and aliases of a pod that names none by annotation. Default: " +
			"sidecar.",
		func(r *raw) any { return &r.DefaultTemplates }},
	{"aliases", "lists of names by name, such as all: [sidecar, logs]",
		"Names that stand for several templates. An alias does not stand for other aliases.",
		func(r *raw) any { return &r.Aliases }},
	{"neverInjectSelector", "a list of label selectors, such as [{matchLabels: {app: web}}]",
		"Label selectors of pods that are not injected, unless label or annotation " +
			"sidecar.istio.io/inject says so. An empty selector matches no pod.",
		func(r *raw) any { return &r.NeverInjectSelector }},
	{"alwaysInjectSelector", "a list of label selectors, such as [{matchLabels: {app: web}}]",
		"Label selectors of pods that are injected whatever the policy is, unless label, " +
			"annotation or neverInjectSelector says otherwise. An empty selector matches no pod.",
		func(r *raw) any { return &r.AlwaysInjectSelector }},
	{"injectedAnnotations", "texts by name",
		"Annotations that each injected pod gets.",
		func(r *raw) any { return &r.InjectedAnnotations }},
	{"sidecarCNI", "keys with values, such as nativeSidecars: true",
		"Settings that Istio does not have in this document.",
		func(r *raw) any { return &r.Own }},
}

var settingKeys = []key[Settings]{
	{"nativeSidecars", "true or false",
		"Whether the proxies are native sidecars: init containers that keep running. Today's " +
			"templates know it as .NativeSidecars; the proxy of an old template is moved. " +
			"Default: false.",
		func(s *Settings) any { return &s.NativeSidecars }},
	{"excludeNamespaces", "a list of namespaces",
		"Namespaces in which no pod is injected. Default: " +
			strings.Join(defaultExcludeNamespaces, ", ") + ".",
		func(s *Settings) any { return &s.ExcludeNamespaces }},
	{"environment", "texts by name",
		"What the function env of templates reads. It reads nothing else.",
		func(s *Settings) any { return &s.Environment }},
	{"revision", "text",
		"What templates know as .Revision. Default: the empty text.",
		func(s *Settings) any { return &s.Revision }},
	{"rewriteProbes", "true or false",
		"Whether the probes of pods go through the proxy's agent where no annotation says so. " +
			"Default: what rewriteAppHTTPProbe of the template or the values says.",
		func(s *Settings) any { return &s.RewriteProbes }},
}

// defaultExcludeNamespaces are Istio's.
var defaultExcludeNamespaces = []string{
	"kube-system", "kube-public", "kube-node-lease", "local-path-storage",
}

// readKeys reads a tree by a table. It returns the keys that are not in the table, and the mistakes
// by key.
func readKeys[T any](tree podtree.Object, table []key[T], into *T) ([]string, map[string]error) {
	var unknown []string
	wrong := map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		i := slices.IndexFunc(table, func(k key[T]) bool { return k.name == name })
		switch {
		case i < 0:
			unknown = append(unknown, name)
		case tree[name] != nil: // null is as if the key were not there
			if err := readValue(tree[name], table[i].field(into)); err != nil {
				wrong[name] = fmt.Errorf("%s: want %s: %w", name, table[i].want, err)
			}
		}
	}
	return unknown, wrong
}

// readValue reads a value into the field that field points to. A number or truth value is read as
// text where text is wanted, as Istio reads it, and a key that is unknown within is a mistake.
func readValue(value, field any) error {
	if decode(value, field) == nil {
		return nil
	}
	err := decode(asTexts(value), field)
	if err == nil {
		return nil
	}
	switch value.(type) {
	case map[string]any, []any:
		cause, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "json: "), " into Go ")
		return errors.New(cause)
	}
	return fmt.Errorf("got %.100q", fmt.Sprint(value))
}

func decode(value, field any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(field)
}

// asTexts returns a value whose numbers and truth values are texts.
func asTexts(value any) any {
	switch value := value.(type) {
	case bool, int64, float64:
		return fmt.Sprint(value)
	case []any:
		texts := make([]any, len(value))
		for i, item := range value {
			texts[i] = asTexts(item)
		}
		return texts
	case map[string]any:
		texts := make(map[string]any, len(value))
		for key, item := range value {
			texts[key] = asTexts(item)
		}
		return texts
	default:
		return value
	}
}
