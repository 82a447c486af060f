package inject

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
)

// oldForm is what a template of the seeds' form yields.
type oldForm struct {
	InitContainers      []corev1.Container            `json:"initContainers"`
	Containers          []corev1.Container            `json:"containers"`
	Volumes             []corev1.Volume               `json:"volumes"`
	ImagePullSecrets    []corev1.LocalObjectReference `json:"imagePullSecrets"`
	RewriteAppHTTPProbe *bool                         `json:"rewriteAppHTTPProbe"`
	DNSConfig           *corev1.PodDNSConfig          `json:"dnsConfig"`
	PodRedirectAnnot    map[string]string             `json:"podRedirectAnnot"`
	SecurityContext     *corev1.PodSecurityContext    `json:"securityContext"` // where the pod's is unset
}

// applyOld puts what a template of the old form yields behind what the pod has.
func (in *injection) applyOld(text []byte) error {
	template, twice, err := readYAML(text)
	if err != nil {
		return err
	}
	in.warnAbout(oldTemplate, twice)
	unknown, err := asDeclared(template, reflect.TypeFor[oldForm]())
	if err != nil {
		return err
	}
	if err := in.noteUnknown(unknown); err != nil {
		return err
	}
	if err := checkNames(template); err != nil {
		return err
	}
	if rewrite, ok := template["rewriteAppHTTPProbe"].(bool); ok {
		in.rewrite = &rewrite
	}
	in.asSidecars(template)
	in.given.add(template)
	spec := podtree.Map(in.pod, "spec")
	for key, value := range podtree.Map(template, "podRedirectAnnot") {
		in.annotate(key, fmt.Sprint(value))
	}
	if err := refuseTaken(spec, template); err != nil {
		return err
	}
	for _, list := range []string{initContainers, containers, "volumes"} {
		appendTo(spec, list, podtree.List(template, list))
	}
	appendNew(spec, "imagePullSecrets", podtree.List(template, "imagePullSecrets"))
	mergeDNS(spec, podtree.Map(template, "dnsConfig"))
	fillIn(spec, "securityContext", podtree.Map(template, "securityContext"))
	return nil
}

// noteUnknown warns of keys that have no effect. Inside of what is put into the pod they are a
// mistake, since the API would drop or refuse them.
func (in *injection) noteUnknown(fields []kjson.FieldError) error {
	var inside []kjson.FieldError
	for _, field := range fields {
		if strings.ContainsAny(field.FieldPath(), ".[") {
			inside = append(inside, field)
			continue
		}
		in.warn("template %q: the key %q is unknown and has no effect", oldTemplate,
			field.FieldPath())
	}
	if len(inside) > 0 {
		return unknownFields(inside)
	}
	return nil
}

// asSidecars makes the proxy a native sidecar where the configuration wants that. Otherwise no
// container is one: old templates write restartPolicy: Always into any container, from times when
// that had no meaning.
func (in *injection) asSidecars(template podtree.Object) {
	native := in.cfg.Settings.NativeSidecars
	for _, list := range []string{initContainers, containers} {
		for _, item := range podtree.List(template, list) {
			c := item.(podtree.Object)
			if !native || list == containers {
				delete(c, "restartPolicy")
			}
		}
	}
	ordinary := podtree.List(template, containers)
	at := podtree.Named(ordinary, proxyName)
	if !native || at < 0 {
		return
	}
	proxy := ordinary[at].(podtree.Object)
	proxy["restartPolicy"] = "Always"
	template[containers] = append(ordinary[:at:at], ordinary[at+1:]...)
	template[initContainers] = append(podtree.List(template, initContainers), proxy)
}

// refuseTaken reports names that the pod has already. The API would refuse such a pod, in other
// words.
func refuseTaken(spec, template podtree.Object) error {
	var mistakes []error
	for _, one := range []struct {
		kind  string
		lists []string
	}{{"container", []string{initContainers, containers}}, {"volume", []string{"volumes"}}} {
		own := map[string]bool{}
		for _, list := range one.lists {
			for _, name := range appendNames(nil, podtree.List(spec, list)) {
				own[name] = true
			}
		}
		for _, list := range one.lists {
			for _, name := range appendNames(nil, podtree.List(template, list)) {
				if own[name] {
					mistakes = append(mistakes, fmt.Errorf("the pod has a %s %q already; rename it",
						one.kind, name))
				}
			}
		}
	}
	return errors.Join(mistakes...)
}
