package render

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// Each function of Istio, against a value that was written by hand.
var functionTests = []struct {
	name, text, want string
}{
	{"annotation that the pod has", "annotation .ObjectMeta `a` 1", "b"},
	{"annotation that it does not have", "annotation .ObjectMeta `x` 15020", "15020"},
	{"annotation with an enum as default",
		"annotation .ObjectMeta `x` .ProxyConfig.InterceptionMode", "REDIRECT"},
	{"annotation of the workload", "annotation .DeploymentMeta `a` `none`", "none"},
	{"annotation without a default, as in Istio, so that flags are refused",
		"annotation .ObjectMeta `x` .Values.unset", "<nil>"},
	{"isset", "isset .ObjectMeta.Annotations `a`", "true"},
	{"isset without the key", "isset .ObjectMeta.Annotations `x`", "false"},
	{"isset without a map", "isset .DeploymentMeta.Annotations `x`", "false"},
	{"isset of a map of any values", "isset .Values.global `hub`", "true"},
	{"isset of a map with keys of a type of its own",
		"isset (index .Spec.Containers 0).Resources.Limits `cpu`", "false"},
	{"isset of what is not set", "isset .Values.unset `hub`", "false"},
	{"valueOrDefault of a value", "valueOrDefault .DeploymentMeta.Name `d`", "sleep"},
	{"valueOrDefault of empty text", "valueOrDefault .DeploymentMeta.UID `d`", ""},
	{"valueOrDefault of empty text of type string", "valueOrDefault .Revision `d`", "d"},
	{"valueOrDefault of what is not set", "valueOrDefault .Values.unset 7", "7"},
	{"valueOrDefault of false", "valueOrDefault false true", "false"},
	{"includeInboundPorts", "includeInboundPorts .Spec.Containers", "80,8443"},
	{"applicationPorts", "applicationPorts .Spec.Containers", "80,8443"},
	{"ports of no containers", "includeInboundPorts .Spec.InitContainers", ""},
	{"excludeInboundPort of a new one", "excludeInboundPort 15020 `80, 81`", "80,81,15020"},
	{"excludeInboundPort of a listed one", "excludeInboundPort `80` `80, 81`", "80, 81"},
	{"excludeInboundPort 0", "excludeInboundPort 0 `80`", "80"},
	{"excludeInboundPort of none", "excludeInboundPort `` `80`", "80"},
	{"excludeInboundPort of an empty list", "excludeInboundPort 80 ``", "80"},
	{"kubevirtInterfaces", "kubevirtInterfaces `net1,net2`", "net1,net2"},
	{"excludeInterfaces", "excludeInterfaces `eth1`", "eth1"},
	{"appendMultusNetwork to none", "appendMultusNetwork `` `default/istio-cni`",
		"default/istio-cni"},
	{"appendMultusNetwork to names", "appendMultusNetwork `a` `default/istio-cni`",
		"a, default/istio-cni"},
	{"appendMultusNetwork twice", "appendMultusNetwork `a, istio-cni` `istio-cni`",
		"a, istio-cni"},
	{"appendMultusNetwork to JSON",
		"appendMultusNetwork (index .ObjectMeta.Annotations `networks`) `default/istio-cni`",
		`[{"name":"one"}, {"name": "istio-cni", "namespace": "default"}]`},
	{"appendMultusNetwork to JSON without a namespace", "appendMultusNetwork `[]` `istio-cni`",
		`[{"name": "istio-cni"}]`},
	{"appendMultusNetwork to JSON of what Go escapes in another way",
		"appendMultusNetwork `[]` \"n/\\a\"", `[{"name": "\u0007", "namespace": "n"}]`},
	{"appendMultusNetwork to JSON twice",
		"appendMultusNetwork `[{\"name\":\"n\",\"namespace\":\"d\"}]` `d/n`",
		`[{"name":"n","namespace":"d"}]`},
	{"formatDuration", "formatDuration .ProxyConfig.DrainDuration", "45s"},
	{"formatDuration of a field that today's type has lost",
		"formatDuration .ProxyConfig.ConnectTimeout", "10s"},
	{"formatDuration of what is not set", "formatDuration .Values.unset", "0s"},
	{"env that the configuration lists", "env `REGION` `south`", "north"},
	{"env that only the process has", "env `PATH` `none`", "none"},
	{"directory", "directory `/etc/certs/key.pem`", "/etc/certs/"},
	{"contains", "contains `/` `a/b`", "true"},
	{"contains the other way round", "contains `a/b` `/`", "false"},
	{"toLower", "toLower .TypeMeta.Kind", "deployment"},
	{"indent", "indent 2 `a\nb`", "a\n  b"},
	{"toJSON", "toJSON .ObjectMeta.Labels", `{"app":"sleep","version":"v1"}`},
	{"toJSON of what is not set", "toJSON .DeploymentMeta.Labels", `{}`},
	{"toJson", "toJson (list 1 `a`)", `[1,"a"]`},
	{"toJson of a map that is not set", "toJson .DeploymentMeta.Labels", `{}`},
	{"fromJSON", "index (fromJSON (index .ObjectMeta.Annotations `volumes`)) `v` `mountPath`",
		"/x"},
	{"structToJSON", "structToJSON (index (index .Spec.Containers 0).Ports 1)",
		`{"containerPort":53,"protocol":"UDP"}`},
	{"structToJSON of what is not set", "structToJSON .Values.unset", "{}"},
	{"protoToJSON leaves out the defaults", "protoToJSON .ProxyConfig",
		`{"concurrency":2,"proxyMetadata":{"A":"b"}}`},
	{"protoToJSON of another message", "protoToJSON .MeshConfig.OutboundTrafficPolicy",
		`{"mode":"ALLOW_ANY"}`},
	{"toYaml", "toYaml .Values.global.proxy.resources.requests", "cpu: 100m\nmemory: 128Mi\n"},
	{"toYaml indented", "toYaml (dict `a` (dict `b` 1)) | indent 2", "a:\n    b: 1\n  "},
	{"strdict", "toJSON (strdict `a` `b` `c`)", `{"a":"b","c":""}`},
	{"mergeMaps", "toJSON (mergeMaps .ObjectMeta.Labels (strdict `app` `x`))",
		`{"app":"x","version":"v1"}`},
	{"toJsonMap", "toJsonMap (strdict `a` `b`) (omit .ObjectMeta.Labels `app`)",
		`{"a":"b","version":"v1"}`},
	{"toJsonMap of none", "toJsonMap", `{}`},
	{"omit", "toJSON (omit .ObjectMeta.Labels `app` `x`)", `{"version":"v1"}`},
	{"omit of a map of any values", "toJson (omit (dict `a` 1 `b` 2) `a`)", `{"b":2}`},
	{"omitNil", "toJson (omitNil .Values.global.proxy.resources)",
		`{"requests":{"cpu":"100m","memory":"128Mi"}}`},
	{"omitNil of lists",
		"toJson (omitNil (fromJSON `{\"a\":[1,null,{\"b\":null}],\"c\":{},\"d\":[null]}`))",
		`{"a":[1],"c":{}}`},
	{"otelResourceAttributes that nobody asks for", otelCall, ""},

	{"InterceptionMode.String", ".ProxyConfig.InterceptionMode.String", "REDIRECT"},
	{"getters in a row", ".ProxyConfig.GetTracing.GetZipkin.GetAddress", ""},
	{"a label that is not there", "index .ObjectMeta.Labels `x`", ""},
	{"a number of the API's own type", "(index .Spec.Containers 0).Resources.Limits.Cpu", "0"},
	{"what is not set in a condition", "if .Values.unset.deeper }}{{ else }}no{{ end", "no"},
	{"comparing what is not set", "eq .Values.unset nil", "true"},
	{"comparing text with several", "eq `b` `a` `b`", "true"},
	{"comparing numbers of several types", "gt .ProxyUID (float64 1)", "true"},
	{"comparing unsigned with signed", "eq .ProxyConfig.StatNameLength 189", "true"},
	{"comparing numbers that differ", "ne 1 2", "true"},
	{"equal to no number", "eq (float64 `NaN`) (float64 `NaN`) 1", "false"},
	{"unequal to itself", "ne (float64 `NaN`) (float64 `NaN`)", "true"},
	{"before nothing", "lt (float64 `NaN`) 1", "false"},
	{"behind nothing", "ge 1 (float64 `NaN`)", "false"},
	{"ordering texts", "lt `a` `b`", "true"},
	{"ordering at most", "le 2 2", "true"},
	{"ordering at least", "ge 1 2", "false"},
	{"keys in order", "keys (dict `b` 1 `a` 2 `c` 3) | join `,`", "a,b,c"},
	{"values in order of the keys", "values (dict `b` 1 `a` 2 `c` 3) | join `,`", "2,1,3"},
	{"sortAlpha", "sortAlpha (list `b` `a` 1) | join `,`", "1,a,b"},
	{"printf", "printf `istio.%s-%03d%%` .Spec.ServiceAccountName 7", "istio.sleeper-007%"},
	{"printf of a percent sign", "printf `100%%p`", "100%p"},
	{"print", "print `a` 1 2 `b`", "a1 2b"},
	{"println", "println `a`", "a\n"},
	{"html", "html `<`", "&lt;"},
	{"js", "js `'`", `\'`},
	{"urlquery", "urlquery `a b`", "a+b"},
	{"a list", "list 1 `a`", "[1 a]"},
	{"a pointer to a number", "(index .Spec.Containers 0).Resources.Requests.Memory.Value", "0"},
	{"set in a map of the template's own", "set (dict `a` 1) `b` 2 | toJson", `{"a":1,"b":2}`},
}

const otelCall = "otelResourceAttributes .MeshConfig .ObjectMeta.Annotations " +
	".ObjectMeta.Labels .DeploymentMeta.Namespace .Spec.Containers"

func TestFunctions(t *testing.T) {
	t.Parallel()
	for _, test := range functionTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := "{{ " + test.text + " }}"
			if got := mustExecute(t, text, Today, sample(t)); got != test.want {
				t.Errorf("%s\n got %q\nwant %q", text, got, test.want)
			}
		})
	}
}

func TestEveryFunctionIsTested(t *testing.T) {
	t.Parallel()
	for _, f := range slices.Concat(istioFunctions, ownFunctions) {
		tested := false
		for _, test := range functionTests {
			words := strings.FieldsFunc(test.text, func(r rune) bool {
				return strings.ContainsRune(" (|", r)
			})
			tested = tested || slices.Contains(words, f.doc.Name)
		}
		if !tested {
			t.Errorf("function %s has no test", f.doc.Name)
		}
	}
}

func TestOpenTelemetryAttributes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Data)
		want   string
	}{
		{"of a pod with several containers", func(*Data) {},
			"service.namespace=shop,service.instance.id=shop.$(POD_NAME).app"},
		{"of a pod with one container", func(d *Data) {
			d.Spec.Containers = d.Spec.Containers[:1]
		}, "service.namespace=shop,service.version=8.1,service.instance.id=shop.$(POD_NAME).app"},
		{"by a digest", func(d *Data) {
			d.Spec.Containers = []corev1.Container{{Name: "c", Image: "host:5000/i@sha256:ab"}}
		}, "service.namespace=shop,service.version=sha256:ab," +
			"service.instance.id=shop.$(POD_NAME).c"},
		{"by tag and digest", func(d *Data) {
			d.Spec.Containers = []corev1.Container{{Name: "c", Image: "i:1@sha256:ab"}}
		}, "service.namespace=shop,service.version=1@sha256:ab," +
			"service.instance.id=shop.$(POD_NAME).c"},
		{"by label", func(d *Data) {
			d.ObjectMeta.Labels["app.kubernetes.io/version"] = "7"
		}, "service.namespace=shop,service.version=7,service.instance.id=shop.$(POD_NAME).app"},
		{"by annotations", func(d *Data) {
			for _, name := range []string{"namespace", "version", "instance.id"} {
				d.ObjectMeta.Annotations["resource.opentelemetry.io/service."+name] = name
			}
		}, "service.namespace=namespace,service.version=version,service.instance.id=instance.id"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := sample(t)
			data.MeshConfig.ExtensionProviders = []*meshconfig.MeshConfig_ExtensionProvider{{
				Provider: &meshconfig.MeshConfig_ExtensionProvider_Opentelemetry{
					Opentelemetry: &meshconfig.
						MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{
						ServiceAttributeEnrichment: meshconfig.
							MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS,
					},
				},
			}}
			test.change(&data)
			got := mustExecute(t, "{{ "+otelCall+" }}", Today, data)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
