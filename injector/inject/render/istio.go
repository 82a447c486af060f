package render

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const proxyContainer = "istio-proxy"

func annotation(meta metav1.ObjectMeta, name string, fallback any) string {
	if value, ok := meta.Annotations[name]; ok {
		return value
	}
	return fmt.Sprint(fallback)
}

func isset(m any, key string) (bool, error) {
	v := reflect.ValueOf(m)
	if !v.IsValid() {
		return false, nil
	}
	if v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String {
		return false, fmt.Errorf("want a map and a key, got %T", m)
	}
	return v.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key())).IsValid(), nil
}

func valueOrDefault(value, fallback any) any {
	if value == nil || value == "" {
		return fallback
	}
	return value
}

// containerPorts leaves out istio-proxy, whose ports are no application's: captured, they would
// lead the proxy back to itself.
func containerPorts(containers []corev1.Container) string {
	var ports []string
	for _, c := range containers {
		if c.Name == proxyContainer {
			continue
		}
		for _, port := range c.Ports {
			if port.Protocol == "" || port.Protocol == corev1.ProtocolTCP {
				ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
			}
		}
	}
	return strings.Join(ports, ",")
}

func excludeInboundPort(port any, list string) string {
	wanted := strings.TrimSpace(fmt.Sprint(port))
	if wanted == "" || wanted == "0" {
		return list
	}
	var ports []string
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == wanted {
			return list
		}
		if item != "" {
			ports = append(ports, item)
		}
	}
	return strings.Join(append(ports, wanted), ",")
}

func same(list string) string { return list }

// appendMultusNetwork knows both forms of Multus' annotation: names with commas between, and JSON.
func appendMultusNetwork(networks, network string) (string, error) {
	trimmed := strings.TrimSpace(networks)
	switch {
	case trimmed == "":
		return network, nil
	case strings.HasPrefix(trimmed, "["):
		return appendToJSON(trimmed, network)
	}
	for item := range strings.SplitSeq(networks, ",") {
		if strings.TrimSpace(item) == network {
			return networks, nil
		}
	}
	return networks + ", " + network, nil
}

func appendToJSON(networks, network string) (string, error) {
	var list []struct{ Name, Namespace string }
	if err := json.Unmarshal([]byte(networks), &list); err != nil {
		return "", fmt.Errorf("read the networks %q: want a list in JSON: %w", networks, err)
	}
	namespace, name, found := strings.Cut(network, "/")
	if !found {
		namespace, name = "", network
	}
	for _, item := range list {
		if item.Name == name && item.Namespace == namespace {
			return networks, nil
		}
	}
	added := `{"name": ` + quoteJSON(name)
	if namespace != "" {
		added += `, "namespace": ` + quoteJSON(namespace)
	}
	separator := ", "
	if len(list) == 0 {
		separator = ""
	}
	end := strings.LastIndex(networks, "]")
	return networks[:end] + separator + added + "}" + networks[end:], nil
}

// quoteJSON writes text as JSON, whose escapes are not those of Go.
func quoteJSON(text string) string {
	quoted, _ := json.Marshal(text) // there is none of text
	return string(quoted)
}

func formatDuration(duration any) (string, error) {
	switch duration := duration.(type) {
	case nil:
		return time.Duration(0).String(), nil
	case *durationpb.Duration:
		return duration.AsDuration().String(), nil
	case time.Duration:
		return duration.String(), nil
	case metav1.Duration:
		return duration.Duration.String(), nil
	}
	return "", fmt.Errorf("want a duration, got %T", duration)
}

// environmentOf returns function env, which reads the environment that it is made with.
func environmentOf(environment map[string]string) func(name, fallback string) string {
	return func(name, fallback string) string {
		if value := environment[name]; value != "" {
			return value
		}
		return fallback
	}
}

func directory(file string) string {
	dir, _ := path.Split(file)
	return dir
}

func contains(needle, text string) bool { return strings.Contains(text, needle) }

func indent(spaces int, text string) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", spaces))
}

// extensionProviders is what otelResourceAttributes reads of the mesh's configuration.
type extensionProviders interface {
	GetExtensionProviders() []*meshconfig.MeshConfig_ExtensionProvider
}

// otelResourceAttributes takes five arguments since Istio's does.
//
//nolint:revive // see above
func otelResourceAttributes(
	config extensionProviders, annotations, labels map[string]string, namespace string,
	containers []corev1.Container,
) string {
	if !wantsAttributes(config) {
		return ""
	}
	version, instance := "", ""
	if len(containers) == 1 {
		version = imageVersion(containers[0].Image)
	}
	if len(containers) > 0 {
		instance = namespace + ".$(POD_NAME)." + containers[0].Name
	}
	if label := labels["app.kubernetes.io/version"]; label != "" {
		version = label
	}
	var attributes []string
	for _, a := range []struct{ name, value string }{
		{"service.namespace", namespace},
		{"service.version", version},
		{"service.instance.id", instance},
	} {
		if value := annotations["resource.opentelemetry.io/"+a.name]; value != "" {
			a.value = value
		}
		if a.value != "" {
			attributes = append(attributes, a.name+"="+a.value)
		}
	}
	return strings.Join(attributes, ",")
}

func wantsAttributes(config extensionProviders) bool {
	const wanted = meshconfig.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS
	for _, provider := range config.GetExtensionProviders() {
		if provider.GetOpentelemetry().GetServiceAttributeEnrichment() == wanted {
			return true
		}
	}
	return false
}

// imageVersion is the tag of an image, its digest, or both with an @ between.
func imageVersion(image string) string {
	image, digest, _ := strings.Cut(image, "@")
	tag := ""
	if i := strings.LastIndexAny(image, ":/"); i >= 0 && image[i] == ':' {
		tag = image[i+1:]
	}
	if tag != "" && digest != "" {
		return tag + "@" + digest
	}
	return tag + digest
}
