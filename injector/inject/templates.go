package inject

import (
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/render"
)

// oldTemplate names the template of the old form, by the key that it stands under.
const oldTemplate = "template"

// maxSize bounds a pod, before and after, and what a template yields. The API takes no objects much
// over it.
const maxSize = 1 << 20

// given is what the templates have, by names, in their order.
type given struct {
	init, ordinary, volumes, pullSecrets []string
}

// add notes what a template has.
func (g *given) add(spec podtree.Object) {
	g.init = appendNames(g.init, podtree.List(spec, initContainers))
	g.ordinary = appendNames(g.ordinary, podtree.List(spec, containers))
	g.volumes = appendNames(g.volumes, podtree.List(spec, "volumes"))
	g.pullSecrets = appendNames(g.pullSecrets, podtree.List(spec, "imagePullSecrets"))
}

// applyTemplates renders the pod's templates and puts into the pod what they yield.
func (in *injection) applyTemplates(data render.Data) error {
	if in.cfg.Template != nil {
		text, err := in.cfg.Template.Execute(data)
		if err != nil {
			return err
		}
		return onTemplate(oldTemplate, in.applyOld(text))
	}
	m := newMerger(in.pod)
	for _, name := range in.names {
		text, err := in.cfg.Templates[name].Execute(data)
		if err != nil {
			return err
		}
		template, twice, err := readTemplate(text)
		if err != nil {
			return onTemplate(name, err)
		}
		in.warnAbout(name, twice)
		in.given.add(podtree.Map(template, "spec"))
		if err := m.merge(template); err != nil {
			return onTemplate(name, err)
		}
	}
	m.restoreOwn()
	in.pod = m.pod
	return nil
}

func onTemplate(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("template %q: %w", name, err)
}

func (in *injection) warnAbout(template string, err error) {
	if err != nil {
		in.warn("%v", onTemplate(template, err))
	}
}

// readTemplate reads the pod that a template of today's form yields. twice is as readYAML has it.
func readTemplate(text []byte) (template podtree.Object, twice, err error) {
	if template, twice, err = readYAML(text); err != nil {
		return nil, nil, err
	}
	return template, twice, checkTemplate(template)
}

// checkTemplate reports what no pod can be made of, and makes of the rest what the types of the API
// want.
func checkTemplate(template podtree.Object) error {
	kind, version := template["kind"], template["apiVersion"]
	if kind != nil && kind != "Pod" || version != nil && version != "v1" {
		return fmt.Errorf("yields a %v of %v, want a Pod of v1", kind, version)
	}
	unknown, err := asDeclared(template, reflect.TypeFor[corev1.Pod]())
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return unknownFields(unknown)
	}
	if podtree.Map(template, "spec") == nil && podtree.Map(template, "metadata") == nil {
		return errors.New("yields no pod; want metadata, spec or both")
	}
	// Strategic merge removes a field whose value is null. In a template that is usually a list
	// whose items were all left out by conditions, so the field is dropped instead.
	for _, part := range []string{"metadata", "spec"} {
		for key, value := range podtree.Map(template, part) {
			if value == nil {
				podtree.Delete(template, part, key)
			}
		}
	}
	return checkNames(podtree.Map(template, "spec"))
}

// merged are the lists that templates add to, by the names of their objects.
var merged = []string{initContainers, containers, "volumes", "imagePullSecrets"}

// checkNames reports items of the merged lists that have no name, and lists of more than maxMerged
// containers.
func checkNames(spec podtree.Object) error {
	var mistakes []error
	for _, list := range merged {
		items := podtree.List(spec, list)
		if len(items) > maxMerged && (list == containers || list == initContainers) {
			mistakes = append(mistakes, fmt.Errorf("%s has %d items, want at most %d", list,
				len(items), maxMerged))
			continue
		}
		for i, item := range items {
			object, _ := item.(podtree.Object)
			if name, _ := object["name"].(string); name == "" && object["$patch"] == nil {
				mistakes = append(mistakes, fmt.Errorf("%s[%d] has no name; give it one", list, i))
			}
		}
	}
	return errors.Join(mistakes...)
}

// appendNames appends the names of the objects of a list that are not there yet.
func appendNames(names []string, list []any) []string {
	have := map[string]bool{}
	for _, name := range names {
		have[name] = true
	}
	for _, item := range list {
		object, _ := item.(podtree.Object)
		name, _ := object["name"].(string)
		if name != "" && !have[name] {
			have[name] = true
			names = append(names, name)
		}
	}
	return names
}
