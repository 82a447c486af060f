// Package config reads what injection is configured by: the data of the ConfigMaps
// istio-sidecar-injector and istio.
//
//	cfg, err := config.Load(config.Sources{
//		Injector: config.Source{Name: "inject-config.yaml", Data: data},
//	})
//
// Be aware: a key that Istio or we could not act on is a mistake; a key that nobody knows is a
// warning, since Istio's versions have different ones, except under sidecarCNI, where it is ours.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/render"
)

// Source is a document: the data itself, or the whole ConfigMap that has it, in YAML or JSON. It
// has at most 3 MiB.
type Source struct {
	Name string // in mistakes: of the file, or of the ConfigMap
	Data []byte // nil: there is none
}

// Sources are the documents that configure injection.
type Sources struct {
	// Injector is key config of the ConfigMap istio-sidecar-injector. There must be one.
	Injector Source
	// Mesh is key mesh of the ConfigMap istio. Without it there are Istio's defaults.
	Mesh Source
	// Values is key values of the ConfigMap istio-sidecar-injector. Without it they are taken from
	// Injector, if that is the whole ConfigMap and has them; else there are none.
	Values Source
}

// Config is what injection is configured by. It does not change once it is loaded.
type Config struct {
	// Enabled is policy: pods that nothing else is said about are injected.
	Enabled bool
	// Never and Always decide about pods that have neither label nor annotation, Never first. An
	// empty selector matches no pod, as in Istio; it is left out here, with a warning.
	Never, Always []labels.Selector
	// InjectedAnnotations are put on each pod that is injected.
	InjectedAnnotations map[string]string
	// Template is the seeds' form. It is nil where there are Templates.
	Template *render.Template
	// Templates are today's form, by name.
	Templates map[string]*render.Template
	// DefaultTemplates are those of a pod that names none: templates and aliases. Unless the
	// configuration says otherwise it is sidecar.
	DefaultTemplates []string
	// Aliases are names of several templates. An alias comes before a template of the same name,
	// and does not stand for other aliases, as in Istio.
	Aliases map[string][]string
	// Mesh is the mesh's configuration.
	Mesh *mesh.MeshConfig
	// Values are those of Istio's chart. It is never nil. Whole numbers are int64, others float64.
	Values map[string]any
	// Settings are those under the key sidecarCNI.
	Settings Settings
	// Version is the sha256, in hex, of all that decides what is injected. Two documents that say
	// the same have the same version, in whatever order, form or ConfigMap they say it.
	Version string
	// Warnings are for whoever configures, one sentence each.
	Warnings []string
}

// Settings are ours; Istio has them elsewhere or not at all.
type Settings struct {
	// NativeSidecars makes the proxies of old templates native sidecars, too, and is what today's
	// templates know as NativeSidecars.
	NativeSidecars bool `json:"nativeSidecars"`
	// ExcludeNamespaces are those in which nothing is injected. Unless the configuration says
	// otherwise they are those of Istio: kube-system, kube-public, kube-node-lease and
	// local-path-storage. An empty list is none.
	ExcludeNamespaces []string `json:"excludeNamespaces"`
	// Environment is all that the function env reads.
	Environment map[string]string `json:"environment"`
	// Revision is what templates know as Revision.
	Revision string `json:"revision"`
	// RewriteProbes decides about pods that have no annotation about it. It is nil where the
	// template and the values decide.
	RewriteProbes *bool `json:"rewriteProbes"`
}

const (
	maxMessages = 100  // mistakes, and warnings
	maxMessage  = 1000 // bytes
)

// Load reads the configuration. All mistakes of all documents come at once, joined.
func Load(s Sources) (*Config, error) {
	l := loader{config: &Config{Values: map[string]any{}}}
	injector := l.open(s.Injector, "config", "injection configuration")
	meshes := l.open(s.Mesh, "mesh", "mesh configuration")
	values := l.openValues(s.Values, injector)
	l.loadMesh(meshes)
	l.loadValues(values)
	l.loadInjector(injector)
	if err := errors.Join(l.mistakes...); err != nil {
		return nil, err
	}
	version, err := digest(injector.tree, meshes.tree, values.tree)
	if err != nil {
		return nil, err
	}
	l.config.Version = version
	return l.config, nil
}

// loader collects what is read, and all mistakes.
type loader struct {
	config   *Config
	mistakes []error
}

func (l *loader) mistake(where string, err error) {
	l.mistakes = appendCapped(l.mistakes, errors.New(clip("read "+where+": "+err.Error())),
		errors.New("there are more mistakes than are shown here"))
}

func (l *loader) warn(where, format string, values ...any) {
	l.config.Warnings = appendCapped(l.config.Warnings,
		clip(where+": "+fmt.Sprintf(format, values...)),
		"there are more warnings than are shown here")
}

// appendCapped appends to a list for people. At its end, the last item says that there are more.
func appendCapped[T any](list []T, item, last T) []T {
	switch {
	case len(list) < maxMessages:
		return append(list, item)
	case len(list) == maxMessages:
		return append(list, last)
	default:
		return list
	}
}

// clip bounds a message, which may quote what somebody wrote.
func clip(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

func (l *loader) loadMesh(d document) {
	if d.wrong {
		return
	}
	m, err := mesh.Parse(d.data)
	for _, mistake := range each(err) {
		l.mistake(d.where, mistake)
	}
	if err != nil {
		return
	}
	for _, warning := range m.Warnings {
		l.warn(d.where, "%s", warning)
	}
	l.config.Mesh = m
}

func (l *loader) loadValues(d document) {
	if d.tree != nil {
		l.config.Values = d.tree
	}
}

// each returns the errors that were joined to one.
func each(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, each(one)...)
	}
	return all
}

// digest is the version of documents. In JSON their keys are sorted.
func digest(trees ...podtree.Object) (string, error) {
	for i := range trees {
		if trees[i] == nil {
			trees[i] = podtree.Object{}
		}
	}
	text, err := json.Marshal(trees)
	if err != nil {
		return "", fmt.Errorf("compute version of configuration: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
