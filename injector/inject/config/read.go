package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/render"
)

// marker is in the template that today's chart of Istio has beside templates, so that an older
// Istio, which reads that one, fails on it.
const marker = "Template_Version_And_Istio_Version_Mismatched"

// sidecar is the template of pods that name none, where the configuration does not say otherwise.
const sidecar = "sidecar"

// loadInjector reads the injector's configuration.
func (l *loader) loadInjector(d document) {
	if d.wrong {
		return
	}
	if len(d.tree) == 0 {
		l.mistake(d.where, errNoConfiguration)
		return
	}
	r := reader{l: l, where: d.where}
	var unknown []string
	unknown, r.wrong = readKeys(d.tree, configKeys, &r.raw)
	for _, name := range unknown {
		l.warn(d.where, "unknown key %q, it has no effect", name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.wrong)) {
		r.join(r.wrong[name])
	}
	r.readPolicy()
	r.readSettings()
	r.readAnnotations()
	l.config.Never = r.readSelectors("neverInjectSelector", r.raw.NeverInjectSelector)
	l.config.Always = r.readSelectors("alwaysInjectSelector", r.raw.AlwaysInjectSelector)
	r.readTemplates(d.tree["template"] != nil, d.tree["templates"] != nil)
	if len(l.mistakes) == 0 {
		r.warnRights()
	}
}

// reader reads the keys of the injector's configuration.
type reader struct {
	l     *loader
	where string // in messages
	raw   raw
	wrong map[string]error // keys that could not be read
}

func (r *reader) join(err error) {
	for _, mistake := range each(err) {
		r.l.mistake(r.where, mistake)
	}
}

func (r *reader) readPolicy() {
	switch {
	case r.wrong["policy"] != nil:
	case r.raw.Policy == "enabled":
		r.l.config.Enabled = true
	case r.raw.Policy == "disabled":
	case r.raw.Policy == "":
		r.join(errors.New("policy: want enabled or disabled, it is not set"))
	default:
		r.join(fmt.Errorf("policy: want enabled or disabled, got %q", r.raw.Policy))
	}
}

func (r *reader) readSettings() {
	s := &r.l.config.Settings
	s.ExcludeNamespaces = nil
	unknown, wrong := readKeys(r.raw.Own, settingKeys, s)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		r.join(fmt.Errorf("sidecarCNI.%w", wrong[name]))
	}
	for _, name := range unknown {
		r.join(fmt.Errorf("unknown key %q, want one of %s", "sidecarCNI."+name, settingNames()))
	}
	if s.ExcludeNamespaces == nil {
		s.ExcludeNamespaces = slices.Clone(defaultExcludeNamespaces)
	}
	for i, namespace := range s.ExcludeNamespaces {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			r.join(fmt.Errorf("sidecarCNI.excludeNamespaces[%d]: want a namespace, got %q: %s", i,
				namespace, problem))
		}
	}
	for _, problem := range validation.IsValidLabelValue(s.Revision) {
		r.join(fmt.Errorf("sidecarCNI.revision: want what can be a label's value, got %q: %s",
			s.Revision, problem))
	}
}

func settingNames() string {
	var names []string
	for _, k := range settingKeys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

func (r *reader) readAnnotations() {
	r.l.config.InjectedAnnotations = r.raw.InjectedAnnotations
	path := field.NewPath("injectedAnnotations")
	for _, problem := range apivalidation.ValidateAnnotations(r.raw.InjectedAnnotations, path) {
		r.join(problem)
	}
}

func (r *reader) readSelectors(name string, list []metav1.LabelSelector) []labels.Selector {
	var selectors []labels.Selector
	for i := range list {
		selector, err := metav1.LabelSelectorAsSelector(&list[i])
		switch {
		case err != nil:
			r.join(fmt.Errorf("%s[%d]: %w", name, i, err))
		case selector.Empty():
			r.l.warn(r.where, "%s[%d]: it is empty and matches no pod; name labels, or remove it",
				name, i)
		default:
			selectors = append(selectors, selector)
		}
	}
	return selectors
}

// readTemplates reads the template or the templates. Each argument says whether the key is there.
func (r *reader) readTemplates(one, several bool) {
	old := r.raw.Template
	marked := old != nil && strings.Contains(*old, marker)
	switch {
	case r.wrong["template"] != nil || r.wrong["templates"] != nil:
	case one && several && !marked:
		r.join(errors.New("template: there is templates, too; want one of them"))
	case several:
		r.readToday()
	case marked:
		r.join(errors.New("template: it is Istio's mark that templates are in the key templates, " +
			"which is not there; want templates"))
	case one:
		r.readOld()
	default:
		r.join(errors.New("template: not set, nor is templates; want one of them"))
	}
}

func (r *reader) readOld() {
	if r.raw.DefaultTemplates != nil || r.raw.Aliases != nil {
		r.l.warn(r.where, "defaultTemplates and aliases have no effect beside template")
	}
	text := *r.raw.Template
	if strings.TrimSpace(text) == "" {
		r.join(errors.New("template: it is empty; want what is put into pods"))
		return
	}
	r.l.config.Template = r.parse("template", text, render.Seeds)
}

func (r *reader) readToday() {
	if len(r.raw.Templates) == 0 {
		r.join(errors.New("templates: want at least one"))
		return
	}
	r.l.config.Templates = map[string]*render.Template{}
	for _, name := range slices.Sorted(maps.Keys(r.raw.Templates)) {
		r.l.config.Templates[name] = r.parse(name, r.raw.Templates[name], render.Today)
	}
	if r.wrong["aliases"] == nil && r.wrong["defaultTemplates"] == nil {
		r.readNames()
	}
}

// readNames reads what the templates are called by.
func (r *reader) readNames() {
	r.l.config.Aliases = r.raw.Aliases
	for _, alias := range slices.Sorted(maps.Keys(r.raw.Aliases)) {
		r.checkNames(fmt.Sprintf("aliases[%q]", alias), r.raw.Aliases[alias], nil)
	}
	r.l.config.DefaultTemplates = r.raw.DefaultTemplates
	if len(r.raw.DefaultTemplates) == 0 {
		r.l.config.DefaultTemplates = []string{sidecar}
	}
	r.checkNames("defaultTemplates", r.l.config.DefaultTemplates, r.raw.Aliases)
}

// checkNames reports the names that are neither a template's nor an alias'.
func (r *reader) checkNames(key string, names []string, aliases map[string][]string) {
	if len(names) == 0 {
		r.join(fmt.Errorf("%s: want at least one template", key))
	}
	for _, name := range names {
		_, isTemplate := r.raw.Templates[name]
		_, isAlias := aliases[name]
		if !isTemplate && !isAlias {
			r.join(fmt.Errorf("%s: there is no template %q, only %s", key, name,
				list(slices.Sorted(maps.Keys(r.raw.Templates)))))
		}
	}
}

func (r *reader) parse(name, text string, form render.Form) *render.Template {
	t, err := render.Parse(name, text, form, r.l.config.Settings.Environment)
	r.join(err)
	return t
}
