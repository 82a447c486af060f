package inject

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/podtree"
	"github.com/sidecar-cni/sidecar-cni/injector/inject/render"
	"github.com/sidecar-cni/sidecar-cni/redirect"
)

// readAnnotations reads those that a template would render into something that nobody could trace
// back to them. All mistakes come at once.
func (in *injection) readAnnotations(pod *corev1.Pod) error {
	var mistakes []error
	in.proxy = in.cfg.Mesh.DefaultConfig
	if text, ok := pod.Annotations[proxyKey]; ok {
		changed, err := in.proxy.With(text)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("annotation %w", err))
		} else {
			in.proxy = changed
			in.warnings = append(in.warnings, changed.Warnings...)
		}
	}
	names, err := in.selectTemplates(pod.Annotations)
	mistakes = append(mistakes, err)
	in.names = names
	if pod.Annotations[modeKey] != string(redirect.ModeNone) {
		mistakes = append(mistakes, redirectionMistakes(pod.Annotations))
	}
	return errors.Join(mistakes...)
}

// redirectionMistakes lists those in the annotations about redirection, by their own keys: from
// istio-init's flags, into which templates copy them, only the flag could be named.
func redirectionMistakes(annotations map[string]string) error {
	pod := redirect.Pod{Annotations: annotations, Spec: &redirect.Spec{}}
	var mistakes redirect.Mistakes
	for _, reading := range redirect.Readings(pod, redirection()) {
		if !reading.Variable {
			mistakes = append(mistakes, reading.Mistakes...)
		}
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("annotation %w", mistakes)
	}
	return nil
}

// maxTemplates bounds how many templates a pod can name, each of which is rendered.
const maxTemplates = 16

// selectTemplates names the templates that a pod gets, aliases resolved. Templates of the old form
// have no names.
func (in *injection) selectTemplates(annotations map[string]string) ([]string, error) {
	if in.cfg.Template != nil {
		return []string{oldTemplate}, nil
	}
	names, source := in.cfg.DefaultTemplates, "defaultTemplates of the configuration"
	if text, ok := annotations[templatesKey]; ok {
		names, source = strings.Split(text, ","), "annotation "+templatesKey
	}
	var all []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if several, ok := in.cfg.Aliases[name]; ok {
			all = append(all, several...)
		} else {
			all = append(all, name)
		}
	}
	if len(all) > maxTemplates {
		return nil, fmt.Errorf("%s: names %d templates, want at most %d", source, len(all),
			maxTemplates)
	}
	for _, name := range all {
		if in.cfg.Templates[name] == nil {
			known := slices.Sorted(maps.Keys(in.cfg.Templates))
			known = append(known, slices.Sorted(maps.Keys(in.cfg.Aliases))...)
			return nil, fmt.Errorf("annotation %s: no template is called %.64q; there are: %s",
				templatesKey, name, strings.Join(known, ", "))
		}
	}
	return all, nil
}

func (in *injection) data(pod *corev1.Pod) render.Data {
	meta := pod.ObjectMeta
	meta.Namespace = in.req.namespace()
	proxy := redirect.Defaults().Proxy
	return render.Data{
		TypeMeta: in.req.Type, DeploymentMeta: in.req.Workload, ObjectMeta: meta, Spec: pod.Spec,
		ProxyConfig: in.proxy, MeshConfig: in.cfg.Mesh, Values: in.cfg.Values,
		Revision: in.cfg.Settings.Revision, NativeSidecars: in.cfg.Settings.NativeSidecars,
		ProxyImage:               in.proxyImage(pod.Annotations),
		ProxyInitImage:           in.initImage(pod.Annotations),
		ProxyUID:                 int64(proxy.UIDs[0]),
		ProxyGID:                 int64(proxy.GIDs[0]),
		InboundTrafficPolicyMode: in.inboundPolicy(),
		CompliancePolicy:         in.cfg.Settings.Environment["COMPLIANCE_POLICY"],
	}
}

func (in *injection) inboundPolicy() string {
	mode := in.cfg.Mesh.GetInboundTrafficPolicy().GetMode()
	if mode == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST {
		return "localhost"
	}
	return "passthrough"
}

// proxyImage is what the pod's annotation says, else what the values of Istio's chart come to.
func (in *injection) proxyImage(annotations map[string]string) string {
	if image := annotations["sidecar.istio.io/proxyImage"]; image != "" {
		return image
	}
	return in.image("proxy", in.proxy.GetImage().GetImageType(), annotations)
}

func (in *injection) initImage(annotations map[string]string) string {
	return in.image("proxy_init", "", annotations)
}

// image puts together hub, name, tag and kind of an image. A kind, such as distroless, stands at
// the end of the tag, in place of another one.
func (in *injection) image(of, kind string, annotations map[string]string) string {
	name := in.value("global", of, "image")
	hub, tag := in.value("global", "hub"), in.value("global", "tag")
	if strings.Contains(name, "/") { // with its hub and tag
		return name
	}
	if name == "" {
		name = "proxyv2"
	}
	if kind == "" {
		kind = in.value("global", "variant")
	}
	if own, ok := annotations["sidecar.istio.io/proxyImageType"]; ok {
		kind = own
	}
	if kind != "" {
		tag = strings.TrimSuffix(strings.TrimSuffix(tag, "-distroless"), "-debug")
	}
	if kind != "" && kind != "default" {
		tag += "-" + kind
	}
	if hub != "" {
		name = hub + "/" + name
	}
	if tag != "" {
		name += ":" + tag
	}
	return name
}

// value is one of Istio's chart as a text; tags may be numbers there.
func (in *injection) value(path ...string) string {
	value := podtree.Get(in.cfg.Values, path...)
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// enabled reports whether a value of Istio's chart is true.
func (in *injection) enabled(path ...string) bool { return in.value(path...) == "true" }
