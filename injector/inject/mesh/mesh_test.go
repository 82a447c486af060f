package mesh_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/mesh"
)

func TestUnknownKeysAreWarnings(t *testing.T) {
	t.Parallel()
	m := parse(t, `
ingressSelektor: a
thriftConfig: {rateLimitUrl: a}
outboundTrafficPolicy: {mode: ALLOW_ANY, egress: b}
configSources: [{address: a}, {site: b}]
default_service_export_to: ["."]
extensionProviders:
- name: a
  zipkin: {service: b, prot: 1}
- name: b
  envoyFileAccessLog: {path: /dev/stdout, logFormat: {labels: {anything: goes}}}
defaultConfig:
  statusport: 1
  status_port: 1
  tracing:
    lightstep: {address: a, secure: true}
  proxyMetadata: {ANYTHING: goes}
`)
	want := []string{
		`unknown key "configSources[1].site", it has no effect`,
		`unknown key "extensionProviders[0].zipkin.prot", it has no effect`,
		`unknown key "ingressSelektor", it has no effect`,
		`unknown key "outboundTrafficPolicy.egress", it has no effect`,
		`unknown key "thriftConfig", it has no effect`,
		`unknown key "defaultConfig.statusport", it has no effect`,
		`unknown key "defaultConfig.tracing.lightstep.secure", it has no effect`,
	}
	if diff := cmp.Diff(want, m.Warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.DefaultConfig.StatusPort != 1 || len(m.DefaultConfig.Warnings) != 0 {
		t.Errorf("status port %d, warnings %q", m.DefaultConfig.StatusPort,
			m.DefaultConfig.Warnings)
	}
}

func TestAllMistakesComeAtOnce(t *testing.T) {
	t.Parallel()
	_, err := mesh.Parse([]byte(`
proxyListenPort: many
mixerCheckServer: 1
disablePolicyChecks: 2
reportBatchMaxEntries: -1
sdsRefreshDelay: soon
reportBatchMaxTime: 15
connectTimeout: soon
accessLogEncoding: XML
enableTracing: 1
enableAutoMtls: maybe
trustDomain: 5
defaultConfig:
  concurrency: many
  extraStatTags: a
  proxyMetadata: [a]
  tracing: {sampling: [1]}
  drainDuration: 5
  connectTimeout: later
  interceptionMode: redirect
`))
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		`defaultConfig.concurrency: want a number, got "many"`,
		`defaultConfig.connectTimeout: want a duration such as 45s, got "later"`,
		`defaultConfig.drainDuration: want a duration such as 45s, got "5"`,
		`defaultConfig.extraStatTags: want a list, of text each: `,
		`defaultConfig.interceptionMode: want one of REDIRECT, TPROXY, NONE, got "redirect"`,
		`defaultConfig.proxyMetadata: want values by name: `,
		`defaultConfig.tracing: want keys with values: `,
		`accessLogEncoding: want one of TEXT, JSON, got "XML"`,
		`connectTimeout: want a duration such as 45s, got "soon"`,
		`disablePolicyChecks: want true or false, got "2"`,
		`enableAutoMtls: want true or false, got "maybe"`,
		`enableTracing: want true or false, got "1"`,
		`mixerCheckServer: want text, got "1"; put it into quotes`,
		`proxyListenPort: want a number (int32), got "many"`,
		`reportBatchMaxEntries: want a number from 0 to 4294967295, got "-1"`,
		`reportBatchMaxTime: want a duration such as 45s, got "15"`,
		`sdsRefreshDelay: want a duration such as 45s, got "soon"`,
		`trustDomain: want text, got "5"`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d mistakes, want %d:\n%v", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	t.Parallel()
	rows := []struct{ name, text, want string }{
		{"no YAML", "a: b: c", "mapping values"},
		{"a list", "- a", "want keys with values"},
		{"no configuration of proxies", "defaultConfig: 1", "defaultConfig: want keys with values"},
		{"too long", strings.Repeat("#", 3<<20+1), "want at most 3145728"},
	}
	for _, row := range rows {
		if _, err := mesh.Parse([]byte(row.text)); err == nil ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: error %v, want one with %q", row.name, err, row.want)
		}
	}
}

// In JSON, all are what Istio has, without what it has lost.
func TestJSONIsIstios(t *testing.T) {
	t.Parallel()
	m := parse(t, "mixerCheckServer: a\nproxyListenPort: 1\ndefaultConfig: {connectTimeout: 1s, statusPort: 2}")
	for _, v := range []any{m.DefaultConfig, m.DefaultConfig.ForSeeds()} {
		got := asJSON(t, v)
		if !strings.Contains(got, `"statusPort":2`) || strings.Contains(got, "onnectTimeout") {
			t.Errorf("%T: %s", v, got)
		}
	}
	got := asJSON(t, m)
	if !strings.Contains(got, `"proxyListenPort":1`) ||
		!strings.Contains(got, `"statusPort":2`) || strings.Contains(got, "ixerCheckServer") {
		t.Errorf("%s", got)
	}
}

// Each field that today's types lack is set by its key.
func TestEachLostKeyIsRead(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"string": "text", "bool": "true", "uint32": "7", "*durationpb.Duration": "7s",
	}
	check := func(kind reflect.Type, indent string, parsed func(string) reflect.Value) {
		for field := range kind.Fields() {
			value, ok := values[field.Type.String()]
			if !ok {
				continue // the embedded one, DefaultConfig and Warnings
			}
			key := strings.ToLower(field.Name[:1]) + field.Name[1:]
			key = strings.Replace(key, "K8SSa", "K8sSa", 1)
			got := parsed(indent + key + ": " + value).FieldByName(field.Name).Interface()
			if d, ok := got.(*durationpb.Duration); ok {
				got = d.AsDuration()
			}
			if text, _ := json.Marshal(got); strings.Trim(string(text), `"`) != value &&
				string(text) != "7000000000" {
				t.Errorf("%s: %s is %s", key, value, text)
			}
		}
	}
	check(reflect.TypeFor[mesh.MeshConfig](), "", func(text string) reflect.Value {
		return reflect.ValueOf(parse(t, text)).Elem()
	})
	check(reflect.TypeFor[mesh.ProxyConfig](), "", func(text string) reflect.Value {
		return reflect.ValueOf(parse(t, "defaultConfig:\n  "+text).DefaultConfig).Elem()
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(ofChart), "concurrency: 4")
	f.Add([]byte("defaultConfig: {}"), "proxyMetadata: {A: b}")
	f.Add([]byte(`{"extensionProviders":[{"name":"a","zipkin":{}}]}`), "tracing: {zipkin: {}}")
	f.Add([]byte("connectTimeout: 1m0s"), "proxyStatsMatcher: {inclusionRegexps: [a]}")
	f.Fuzz(func(t *testing.T, data []byte, annotation string) {
		m, err := mesh.Parse(data)
		if err != nil {
			return
		}
		before := asJSON(t, m)
		c, err := m.DefaultConfig.With(annotation)
		if err == nil {
			asJSON(t, c.ForSeeds())
		}
		if after := asJSON(t, m); after != before {
			t.Errorf("an annotation changed the mesh:\n%s\n%s", before, after)
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sorted(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
