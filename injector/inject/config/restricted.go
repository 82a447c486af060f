package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/render"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/yamltree"
)

const (
	initContainer = "istio-init" // leaves the pod, and its rights with it
	netAdmin      = "NET_ADMIN"
	maxRendered   = 1 << 20 // bytes
	modeKey       = "sidecar.istio.io/interceptionMode"
)

// warnRights names the templates that give a container rights which Pod Security's level restricted
// does not allow. What a template gives is seen in what it yields for a sample pod; if it yields
// none, in its text.
func (r *reader) warnRights() {
	texts := maps.Clone(r.raw.Templates)
	if r.l.config.Template != nil {
		texts = map[string]string{"template": *r.raw.Template}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		template := r.l.config.Template
		if template == nil {
			template = r.l.config.Templates[name]
		}
		if what := r.rights(template, texts[name]); what != "" {
			r.l.warn(r.where, "template %q gives %s: pods with that do not pass Pod Security "+
				"\"restricted\"; use mode REDIRECT without it, or namespaces whose level is "+
				"privileged", name, what)
		}
	}
}

// rights says which rights a template gives, and when; "" if none.
func (r *reader) rights(template *render.Template, text string) string {
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		tree, err := r.sample(template, mode)
		if err != nil {
			return rightsInText(text)
		}
		for _, c := range containers(tree) {
			if right := rightOf(c); right != "" {
				return fmt.Sprintf("container %s %s in mode %s", podtree.String(c, "name"), right,
					mode)
			}
		}
	}
	return ""
}

// sample returns what a template yields for a pod in an interception mode.
func (r *reader) sample(t *render.Template, mode string) (podtree.Object, error) {
	proxy, err := r.l.config.Mesh.DefaultConfig.With("interceptionMode: " + mode)
	if err != nil {
		return nil, err
	}
	text, err := t.Execute(render.Data{
		TypeMeta:       metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		DeploymentMeta: metav1.ObjectMeta{Name: "sample", Namespace: "default"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "sample", Namespace: "default",
			Labels:      map[string]string{"app": "sample"},
			Annotations: map[string]string{modeKey: mode},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "sample", Image: "sample",
				Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			}},
		},
		ProxyConfig: proxy, MeshConfig: r.l.config.Mesh, Values: r.l.config.Values,
		Revision:       r.l.config.Settings.Revision,
		NativeSidecars: r.l.config.Settings.NativeSidecars,
		ProxyImage:     "proxyv2", ProxyInitImage: "proxyv2",
		ProxyUID: 1337, ProxyGID: 1337,
		InboundTrafficPolicyMode: "passthrough",
	})
	if err != nil {
		return nil, err
	}
	return yamltree.Decode(text, maxRendered)
}

// containers are those of what a template of either form yields, without istio-init.
func containers(tree podtree.Object) []podtree.Object {
	if spec := podtree.Map(tree, "spec"); spec != nil {
		tree = spec
	}
	var all []podtree.Object
	for _, key := range []string{"initContainers", "containers"} {
		for _, item := range podtree.List(tree, key) {
			if c, ok := item.(podtree.Object); ok && c["name"] != initContainer {
				all = append(all, c)
			}
		}
	}
	return all
}

// rightOf returns a right of a container that restricted does not allow; "" if it has none.
func rightOf(c podtree.Object) string {
	if privileged, _ := podtree.Get(c, "securityContext", "privileged").(bool); privileged {
		return "privileged"
	}
	for _, item := range podtree.List(c, "securityContext", "capabilities", "add") {
		if item != "NET_BIND_SERVICE" { // the only one that restricted allows
			return fmt.Sprint(item)
		}
	}
	return ""
}

// containerName finds the line that names a container; variables are in upper case.
var containerName = regexp.MustCompile(`^\s*(?:- )?name: "?([a-z0-9.-]+)"?\s*$`)

// rightsInText says whether a template's text has NET_ADMIN anywhere behind the name of another
// container than istio-init.
func rightsInText(text string) string {
	name := ""
	for line := range strings.Lines(text) {
		if found := containerName.FindStringSubmatch(line); found != nil {
			name = found[1]
		}
		if name != initContainer && strings.Contains(line, netAdmin) {
			return netAdmin + " to a container other than " + initContainer
		}
	}
	return ""
}
